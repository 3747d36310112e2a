//! What of a file is built for the tests, by `cfg` as the tests' programs have it. Test code itself
//! is not mutated, so `test` is false.

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, Token};

/// Features that the programs are built with (cargo unifies them).
const FEATURES: [&str; 3] = ["steps", "verify", "x86_64"];

/// Whether code with these attributes is built, and is no test.
pub fn is_built(attributes: &[Attribute]) -> bool {
    attributes.iter().all(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|meta| holds(&meta))
        }
        Meta::Path(path) => !path.is_ident("test"),
        _ => true,
    })
}

fn holds(meta: &Meta) -> bool {
    match meta {
        Meta::Path(path) => path.is_ident("debug_assertions") || path.is_ident("unix"),
        Meta::NameValue(pair) => {
            let Expr::Lit(ExprLit { lit: Lit::Str(value), .. }) = &pair.value else { return false };
            let value = value.value();
            match pair.path.get_ident().map(ToString::to_string).as_deref() {
                Some("feature") => FEATURES.contains(&value.as_str()),
                Some("target_arch") => value == std::env::consts::ARCH,
                Some("target_os") => value == std::env::consts::OS,
                Some("target_pointer_width") => value == "64",
                _ => false,
            }
        }
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let parts = parts.unwrap_or_default();
            match list.path.get_ident().map(ToString::to_string).as_deref() {
                Some("all") => parts.iter().all(holds),
                Some("any") => parts.iter().any(holds),
                Some("not") => !parts.iter().any(holds),
                _ => false,
            }
        }
    }
}
