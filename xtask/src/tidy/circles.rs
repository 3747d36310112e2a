//! Circles of files: no file of a crate needs itself by way of others.
//!
//! A file *uses* another one of its crate where an import or a path in its code leads to what the
//! other defines. A name that is passed on (`pub use`) is followed to the file that defines it, so
//! two files that use each other through their `mod.rs` use each other.
//!
//! ```text
//!   does not count     a circle
//!   mod.rs ─▶ part     part ─▶ other
//!     ▲        │         ▲       │
//!     └────────┘         └───────┘
//! ```
//!
//! What a file uses of those that it is a part of (its `mod.rs`, and theirs) does not count: a part
//! may know the whole. Nor does what a file only declares (`mod part;`) or passes on, nor tests.
//!
//! **Not here**: methods. A call names no file, so methods of one type may be spread over files
//! that call each other.

use foliant_mutants::is_built;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

/// Names, as `::` parts them.
type Names = Vec<String>;

/// What a file says.
#[derive(Default)]
struct File {
    name: String,
    defines: BTreeSet<String>,
    /// Where names lead that are imported.
    imports: BTreeMap<String, Names>,
    /// Modules all of whose names are imported.
    globs: Vec<Names>,
    /// Imports that are passed on.
    passed: Vec<(String, Names)>,
    /// Paths in its code, and imports for itself.
    paths: BTreeSet<Names>,
    /// What paths in its code begin with.
    words: BTreeSet<String>,
    /// How many modules inside of the file the visit is in.
    depth: usize,
}

/// The files of each crate, by module.
#[derive(Default)]
pub(super) struct Files(BTreeMap<String, BTreeMap<Names, File>>);

impl Files {
    /// Reads a file, unless it is a test's.
    pub(super) fn note(&mut self, name: &str, text: &str, findings: &mut Vec<String>) {
        let Some((home, inside)) = name.split_once("/src/") else { return };
        if ["test", "model", "stress"].iter().any(|word| inside.contains(word)) {
            return;
        }
        let tree = match syn::parse_file(text) {
            Ok(tree) => tree,
            Err(why) => return findings.push(format!("{name} cannot be read: {why}")),
        };
        let mut file = File { name: name.to_string(), ..File::default() };
        file.visit_file(&tree);
        for (called, path) in std::mem::take(&mut file.passed) {
            if file.words.contains(&called) {
                file.paths.insert(path);
            }
        }
        let inside = inside.trim_end_matches(".rs").split('/');
        let module = inside.filter(|part| !["mod", "lib", "main"].contains(part));
        let module = module.map(str::to_string).collect();
        self.0.entry(home.to_string()).or_default().insert(module, file);
    }
    /// No file uses itself by way of others.
    pub(super) fn circles(&self, findings: &mut Vec<String>) {
        for files in self.0.values() {
            let uses: BTreeMap<&Names, BTreeMap<&Names, String>> =
                files.iter().map(|(module, file)| (module, used(files, module, file))).collect();
            let mut told = BTreeSet::new();
            for module in files.keys() {
                let Some(circle) = circle(&uses, module) else { continue };
                if circle.iter().any(|module| told.contains(module)) {
                    continue;
                }
                let steps = circle.iter().zip(circle.iter().cycle().skip(1));
                let steps: Vec<String> = steps
                    .map(|(from, to)| format!("{} uses `{}`", files[*from].name, uses[from][to]))
                    .collect();
                findings.push(format!(
                    "a circle of files: {}: move what two of them need into one that both can use",
                    steps.join(", ")
                ));
                told.extend(circle);
            }
        }
    }
}

/// The modules that a file uses, each with a path that leads there.
fn used<'f>(
    files: &'f BTreeMap<Names, File>,
    module: &Names,
    file: &File,
) -> BTreeMap<&'f Names, String> {
    let leads = |path: &Names| {
        let to = lead(files, module, path, 0)?;
        let counts = !module.starts_with(to);
        counts.then(|| (to, path.join("::")))
    };
    file.paths.iter().filter_map(leads).collect()
}

/// The module that defines what a path in `from` names, if it is one of the crate.
fn lead<'f>(
    files: &'f BTreeMap<Names, File>,
    from: &[String],
    path: &[String],
    turns: usize,
) -> Option<&'f Names> {
    if turns > 20 {
        return None; // a name that leads to itself
    }
    let known = |module: &[String]| files.get_key_value(module);
    let (mut at, mut rest) = (from.to_vec(), path);
    match path.first()?.as_str() {
        "crate" => (at, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        _ => {
            while rest.first().is_some_and(|part| part == "super") {
                (_, rest) = (at.pop()?, &rest[1..]);
            }
        }
    }
    let is_near = rest.len() == path.len();
    loop {
        let (module, file) = known(&at)?;
        let Some(part) = rest.first() else {
            let is_leaf =
                !files.keys().any(|other| other.len() > at.len() && other.starts_with(&at));
            return is_leaf.then_some(module); // of a whole folder the paths in the code say more
        };
        let child: Names = at.iter().chain([part]).cloned().collect();
        if known(&child).is_some() {
            (at, rest) = (child, &rest[1..]);
            continue;
        }
        if file.defines.contains(part) {
            return Some(module);
        }
        let on = |names: &Names, rest: &[String]| {
            let path: Names = names.iter().chain(rest).cloned().collect();
            lead(files, &at, &path, turns + 1)
        };
        if let Some(names) = file.imports.get(part) {
            return on(names, &rest[1..]);
        }
        let is_own = at == from && is_near;
        let found = file.globs.iter().find_map(|names| on(names, rest));
        return found.or((!is_own && turns == 0).then_some(module));
    }
}

/// The shortest way from a module back to it.
fn circle<'f>(
    uses: &BTreeMap<&'f Names, BTreeMap<&'f Names, String>>,
    start: &'f Names,
) -> Option<Vec<&'f Names>> {
    let mut from = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(module) = next.pop_front() {
        for to in uses[module].keys() {
            if *to == start {
                let back = |at: &&'f Names| (*at != start).then(|| from[*at]);
                let mut way: Vec<_> = std::iter::successors(Some(module), back).collect();
                way.reverse();
                return Some(way);
            }
            if !from.contains_key(to) {
                from.insert(*to, module);
                next.push_back(to);
            }
        }
    }
    None
}

impl File {
    fn import(&mut self, is_public: bool, mut before: Names, tree: &UseTree) {
        let (called, last) = match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                return self.import(is_public, before, &path.tree);
            }
            UseTree::Group(group) => {
                let each = group.items.iter();
                return each.for_each(|tree| self.import(is_public, before.clone(), tree));
            }
            UseTree::Glob(_) => return self.globs.push(before),
            UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            UseTree::Rename(renamed) => (renamed.rename.to_string(), renamed.ident.to_string()),
        };
        let called = match (called.as_str(), before.last()) {
            ("self", Some(module)) => module.clone(),
            _ => called,
        };
        if last != "self" {
            before.push(last);
        }
        let before = self.outside(before);
        if self.depth == 0 {
            self.imports.insert(called.clone(), before.clone());
        }
        match is_public {
            true => self.passed.push((called, before)),
            false => drop(self.paths.insert(before)),
        }
    }
    fn path(&mut self, parts: Names) {
        let parts = self.outside(parts);
        self.words.extend(parts.first().cloned());
        self.paths.insert(parts);
    }
    /// A path in a module inside of the file, as it is outside of that.
    fn outside(&self, mut parts: Names) -> Names {
        let above = parts.iter().take(self.depth).take_while(|part| *part == "super").count();
        parts.drain(..above);
        parts
    }
}

impl<'t> Visit<'t> for File {
    fn visit_item(&mut self, item: &'t Item) {
        let (attributes, defined): (&[Attribute], _) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Mod(item) => (&item.attrs, None),
            Item::Use(item) => (&item.attrs, None),
            _ => (&[], None),
        };
        if is_built(attributes) {
            self.defines.extend(defined.filter(|_| self.depth == 0).map(ToString::to_string));
            visit::visit_item(self, item);
        }
    }
    fn visit_item_mod(&mut self, item: &'t ItemMod) {
        self.depth += 1;
        visit::visit_item_mod(self, item);
        self.depth -= 1;
    }
    fn visit_item_use(&mut self, item: &'t ItemUse) {
        let is_public = !matches!(item.vis, Visibility::Inherited);
        self.import(is_public, Vec::new(), &item.tree);
    }
    fn visit_path(&mut self, path: &'t syn::Path) {
        self.path(path.segments.iter().map(|part| part.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
    fn visit_macro(&mut self, called: &'t Macro) {
        visit::visit_macro(self, called);
        let text = called.tokens.to_string().replace(" :: ", "::");
        for code in text.split('"').step_by(2) {
            let each = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let paths = each.map(|path| path.split("::").map(str::to_string).collect::<Names>());
            paths.filter(|path| !path[0].is_empty()).for_each(|path| self.path(path));
        }
    }
    fn visit_attribute(&mut self, _: &'t Attribute) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[(&str, &str)]) -> Vec<String> {
        let (mut files, mut findings) = (Files::default(), Vec::new());
        for (name, text) in [("lib", "")].iter().chain(texts) {
            files.note(&format!("crates/mm/src/{name}.rs"), text, &mut findings);
        }
        files.circles(&mut findings);
        findings
    }

    #[test]
    fn two_files_that_use_each_other_are_a_circle() {
        let other = ("space/b", "pub struct B(crate::space::a::A);");
        let found_in = |text| found(&[("space/mod", "mod a; mod b;"), ("space/a", text), other]);
        for text in [
            "use super::b::B; pub struct A;",
            "use super::b::{self, B as C}; struct A;",
            "use super::*; struct A; fn f(_: b::B) {}",
            "struct A; fn f() { assert!(super::b::B::is(1)) }",
            "mod inside { use super::super::b::B; } struct A;",
        ] {
            assert_eq!(found_in(text).len(), 1, "{text}");
        }
        let said = "a circle of files: crates/mm/src/space/a.rs uses `super::b::B`, \
                    crates/mm/src/space/b.rs uses `crate::space::a::A`: \
                    move what two of them need into one that both can use";
        assert_eq!(found_in("use super::b::B; pub struct A;"), [said]);
        for text in [
            "pub struct A;",
            "/// As `super::b::B`.\npub struct A; // super::b::B",
            "pub struct A; #[cfg(test)] mod tests { use super::super::b::B; }",
            "use foliant_units::b::B; struct A;",
            "struct A; fn f() { panic!(\"super::b::B\") }",
        ] {
            assert_eq!(found_in(text), [""; 0], "{text}");
        }
    }
    #[test]
    fn names_are_followed_to_the_file_that_defines_them() {
        let passes = ("space/mod", "mod a; mod b; mod c; pub use a::A; pub(crate) use b::B;");
        let (a, b) = (("space/a", "use super::B; struct A;"), ("space/b", "struct B(super::A);"));
        let c = ("space/c", "use super::A; struct C;");
        assert_eq!(found(&[passes, a, b, c]).len(), 1);
        assert_eq!(found(&[passes, a, ("space/b", "struct B;"), c]), [""; 0]);
    }
    #[test]
    fn a_part_may_know_the_whole_and_no_other_whole() {
        let whole = ("space/mod", "mod a; use a::A; pub struct Space(A);");
        let part = ("space/a", "use super::Space; pub struct A;");
        assert_eq!(found(&[whole, part]), [""; 0]);
        let user = ("fault", "use crate::space::Space; pub struct Fault;");
        let part = ("space/a", "use crate::fault::Fault; pub struct A;");
        assert_eq!(found(&[whole, part, user]).len(), 1, "by way of its whole");
    }
    #[test]
    fn three_files_are_a_circle_and_tests_are_none() {
        let lib = ("lib", "mod a; mod b; mod c;");
        let a = ("a", "use crate::b::B; pub struct A;");
        let b = ("b", "use crate::c::C; pub struct B;");
        let c = "use crate::a::A; pub struct C;";
        assert_eq!(found(&[lib, a, b, ("c", c)]).len(), 1);
        assert_eq!(found(&[lib, a, b, ("c", "pub struct C;"), ("c_tests", c)]), [""; 0]);
    }
}
