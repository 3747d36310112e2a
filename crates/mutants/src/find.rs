//! The places of a file where a small mistake can be made.
//!
//! Tests, constants, types, patterns, what macros are given, `fmt`: none of them is touched.

use crate::built::is_built;
use crate::mutant::{Edit, Kind, Mutant, Name};
use std::collections::BTreeMap;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, BinOp, Block, Expr, ExprBinary, ExprIf, ExprMatch, ExprMethodCall, ExprRange, ExprUnary,
    ExprWhile, ImplItem, ImplItemFn, Item, ItemFn, ItemImpl, ItemMod, ItemTrait, Lit, Pat, Path,
    RangeLimits, ReturnType, Signature, Stmt, TraitItem, TraitItemFn, Type, UnOp,
};

/// Where functions of the switch are.
const SWITCH: &str = "::foliant_units::mutants";

/// Methods that are easily mistaken for each other, in both directions.
const METHODS: [(&str, &str); 15] = [
    ("min", "max"),
    ("any", "all"),
    ("is_some", "is_none"),
    ("is_ok", "is_err"),
    ("is_some_and", "is_none_or"),
    ("start", "end"),
    ("first", "last"),
    ("align_down", "align_up"),
    ("leading_zeros", "trailing_zeros"),
    ("wrapping_add", "wrapping_sub"),
    ("saturating_add", "saturating_sub"),
    ("checked_add", "checked_sub"),
    ("fetch_add", "fetch_sub"),
    ("fetch_or", "fetch_and"),
    ("skip", "take"),
];

/// Enums of two variants without fields, by name.
pub(crate) type Pairs = BTreeMap<String, (String, String)>;

/// Adds the enums of a file that have two variants without fields.
pub(crate) fn pairs(file: &syn::File, pairs: &mut Pairs) {
    struct Enums<'a>(&'a mut Pairs);
    impl Visit<'_> for Enums<'_> {
        fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
            let variants: Vec<_> = item.variants.iter().collect();
            if let [one, other] = variants[..]
                && one.fields.is_empty()
                && other.fields.is_empty()
            {
                let pair = (one.ident.to_string(), other.ident.to_string());
                self.0.insert(item.ident.to_string(), pair);
            }
        }
    }
    Enums(pairs).visit_file(file);
}

/// The mutants of one file.
pub(crate) fn find(
    path: &str,
    room: &str,
    text: &str,
    file: &syn::File,
    pairs: &Pairs,
) -> Vec<Mutant> {
    let mut finder = Finder { path, room, text, pairs, within: Vec::new(), found: Vec::new() };
    finder.visit_file(file);
    finder.found
}

struct Finder<'a> {
    path: &'a str,
    room: &'a str,
    text: &'a str,
    pairs: &'a Pairs,
    /// Types and functions that the place is in.
    within: Vec<String>,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    /// Adds a mutant. Its part `changed` becomes `new`: that is for readers. `edits` are the ways
    /// to write it, the best first.
    fn add(&mut self, kind: Kind, changed: Range<usize>, new: &str, edits: Vec<Edit>) {
        let line_start = self.text[..changed.start].rfind('\n').map_or(0, |at| at + 1);
        let rest = &self.text[changed.end..];
        let line_end = changed.end + rest.find('\n').unwrap_or(rest.len());
        let (head, tail) =
            (&self.text[line_start..changed.start], &self.text[changed.end..line_end]);
        let number = |at: usize| self.text[..at].matches('\n').count() + 1;
        self.found.push(Mutant {
            name: Name {
                file: self.path.to_owned(),
                function: self.within.join("::"),
                before: one_line(&self.text[line_start..line_end]),
                after: one_line(&format!("{head}{new}{tail}")),
            },
            line: number(changed.start),
            last_line: number(changed.end),
            room: self.room.to_owned(),
            kind,
            edits,
        });
    }

    fn slice(&self, range: Range<usize>) -> &str {
        &self.text[range]
    }

    /// What stands in a region, on one line and without comments.
    fn code(&self, range: Range<usize>) -> String {
        let code = self.slice(range);
        code.parse::<proc_macro2::TokenStream>().map_or(code.to_owned(), |code| code.to_string())
    }

    /// Adds the mutant that gives an expression another value.
    fn instead(
        &mut self,
        kind: Kind,
        region: Range<usize>,
        code: &str,
        changed: Range<usize>,
        new: &str,
    ) {
        let edit = instead(region, code);
        self.add(kind, changed, new, vec![edit]);
    }

    fn condition(&mut self, condition: &Expr, both: bool) {
        if let Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) = condition
            && has_let(condition)
        {
            self.condition(left, both);
            self.condition(right, both);
            return;
        }
        if matches!(condition, Expr::Let(_) | Expr::Lit(_)) {
            return;
        }
        let region = bytes(condition);
        let mut forced = |how: &str, new: &str| {
            let edit = Edit::around(region.clone(), format!("{SWITCH}::{how}(__ID__, "), ")");
            self.add(Kind::Condition, region.clone(), new, vec![edit]);
        };
        if both {
            forced("or", "true");
        }
        forced("and", "false");
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let place = block.brace_token.span.open().byte_range().end;
        let changed = place..place;
        let answers: Vec<String> = match &signature.output {
            _ if is_unreachable(block) => vec![], // no program comes there
            ReturnType::Default => vec![String::new()],
            ReturnType::Type(_, of) => answers(of),
        };
        for answer in answers {
            if is_just(block, &answer) {
                continue;
            }
            let text = format!(" return {answer};").replace(" ;", ";");
            let edit = Edit::at(place, format!(" if {SWITCH}::on(__ID__) {{{text} }}"));
            self.add(Kind::Body, changed.clone(), &text, vec![edit]);
        }
    }

    /// Adds the mutant that leaves a statement out.
    fn left_out(&mut self, region: Range<usize>) {
        let edit = Edit::around(region.clone(), format!("if !{SWITCH}::on(__ID__) {{ "), " }");
        self.add(Kind::Statement, region, "", vec![edit]);
    }

    /// Statements of a block; `is_unit` if what the last one comes to is nothing.
    fn statements(&mut self, block: &Block, is_unit: bool) {
        let last = block.stmts.len().saturating_sub(1);
        for (n, statement) in block.stmts.iter().enumerate() {
            match statement {
                Stmt::Expr(expr, Some(_)) if can_go(expr) => self.left_out(bytes(statement)),
                Stmt::Expr(expr, None) if is_unit && n == last && is_call(expr) => {
                    self.left_out(bytes(statement));
                }
                _ => {}
            }
        }
    }

    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.within.push(name);
        visit(self);
        self.within.pop();
    }

    fn whole_function(&mut self, signature: &Signature, block: &Block) {
        let is_unit = matches!(signature.output, ReturnType::Default);
        let is_never =
            matches!(&signature.output, ReturnType::Type(_, of) if matches!(**of, Type::Never(_)));
        self.within(signature.ident.to_string(), |this| {
            if !block.stmts.is_empty() && !is_never {
                this.function(signature, block);
            }
            // A function of one statement does nothing without that statement, which is a mutant
            // already.
            if !(is_unit && block.stmts.len() == 1) {
                this.statements(block, is_unit);
            }
            visit::visit_block(this, block);
        });
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !matches!(item, Item::Const(_) | Item::Static(_) | Item::Enum(_) | Item::Macro(_)) {
            visit::visit_item(self, item);
        }
    }
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_built(&item.attrs) && item.content.is_some() {
            self.within(item.ident.to_string(), |this| visit::visit_item_mod(this, item));
        }
    }
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let of = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        let shows = of.is_some_and(|of| of.ident == "Display" || of.ident == "Debug");
        if is_built(&item.attrs) && !shows {
            let name = match &*item.self_ty {
                Type::Path(path) => last(&path.path),
                _ => None,
            };
            self.within(name.unwrap_or_default(), |this| visit::visit_item_impl(this, item));
        }
    }
    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if is_built(&item.attrs) {
            self.within(item.ident.to_string(), |this| visit::visit_item_trait(this, item));
        }
    }
    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !matches!(item, ImplItem::Const(_)) {
            visit::visit_impl_item(self, item);
        }
    }
    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if !matches!(item, TraitItem::Const(_)) {
            visit::visit_trait_item(self, item);
        }
    }
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if is_built(&item.attrs) {
            self.whole_function(&item.sig, &item.block);
        }
    }
    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if is_built(&item.attrs) {
            self.whole_function(&item.sig, &item.block);
        }
    }
    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default
            && is_built(&item.attrs)
        {
            self.whole_function(&item.sig, block);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let attributes = match statement {
            Stmt::Local(local) => &local.attrs,
            Stmt::Expr(Expr::Block(block), _) => &block.attrs,
            Stmt::Expr(Expr::If(of), _) => &of.attrs,
            Stmt::Expr(Expr::MethodCall(call), _) => &call.attrs,
            Stmt::Expr(Expr::Call(call), _) => &call.attrs,
            _ => &Vec::new(),
        };
        if is_built(attributes) {
            visit::visit_stmt(self, statement);
        }
    }
    fn visit_expr_for_loop(&mut self, node: &'ast syn::ExprForLoop) {
        self.statements(&node.body, true);
        visit::visit_expr_for_loop(self, node);
    }
    fn visit_expr_loop(&mut self, node: &'ast syn::ExprLoop) {
        self.statements(&node.body, true);
        visit::visit_expr_loop(self, node);
    }
    fn visit_expr_block(&mut self, node: &'ast syn::ExprBlock) {
        self.statements(&node.block, false);
        visit::visit_expr_block(self, node);
    }
    fn visit_expr_unsafe(&mut self, node: &'ast syn::ExprUnsafe) {
        self.statements(&node.block, false);
        visit::visit_expr_unsafe(self, node);
    }

    fn visit_expr_if(&mut self, node: &'ast ExprIf) {
        self.condition(&node.cond, true);
        self.statements(&node.then_branch, node.else_branch.is_none());
        visit::visit_expr_if(self, node);
    }
    fn visit_expr_while(&mut self, node: &'ast ExprWhile) {
        self.condition(&node.cond, false);
        self.statements(&node.body, true);
        visit::visit_expr_while(self, node);
    }
    fn visit_expr_match(&mut self, node: &'ast ExprMatch) {
        let (last, others) = match node.arms.split_last() {
            Some((last, others)) if is_catch_all(&last.pat) => (last, others),
            _ => return visit::visit_expr_match(self, node),
        };
        for arm in others {
            if !matches!(arm.pat, Pat::Guard(_)) && is_built(&arm.attrs) {
                let place = bytes(&arm.pat).end;
                let edit = Edit::at(place, format!(" if !{SWITCH}::on(__ID__)"));
                // The arm is shown as gone as far as it is on its first line.
                let shown = self.slice(bytes(&arm.pat).start..bytes(arm).end).lines().next();
                let end = bytes(&arm.pat).start + shown.map_or(0, str::len);
                self.add(Kind::Arm, bytes(&arm.pat).start..end, "(no such arm)", vec![edit]);
            }
        }
        let _ = last;
        visit::visit_expr_match(self, node);
    }
    fn visit_arm(&mut self, arm: &'ast Arm) {
        if let Pat::Guard(guarded) = &arm.pat {
            self.condition(&guarded.guard, true);
            self.visit_expr(&guarded.guard);
        }
        self.visit_expr(&arm.body);
    }

    fn visit_expr_binary(&mut self, node: &'ast ExprBinary) {
        if let Some((kind, new)) = counterpart(&node.op)
            && !has_let(&node.left)
            && !has_let(&node.right)
        {
            let (left, right) = (bytes(&node.left), bytes(&node.right));
            let region = left.start..right.end;
            let token = bytes(&node.op);
            let old = self.slice(token.clone()).to_owned();
            let plain = instead(
                region.clone(),
                &format!("({}) {new} ({})", self.code(left), self.code(right)),
            );
            let edits = match &node.op {
                BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) => {
                    let picked = format!(
                        ")) {{ (l, r) => {SWITCH}::pick(__ID__, *l {old} *r, *l {new} *r) }})"
                    );
                    let between = Some((token.clone(), "), &(".to_owned()));
                    let both = Edit {
                        token: between,
                        ..Edit::around(region, "(match (&(".into(), &picked)
                    };
                    vec![both, plain]
                }
                _ => vec![plain],
            };
            // A sum of two assignments is an assignment: no parentheses are needed around it, and
            // none hurt.
            self.add(kind, token, new, edits);
        }
        // A variant that is compared with is not exchanged, because the comparison is.
        let compares = matches!(node.op, BinOp::Eq(_) | BinOp::Ne(_));
        for side in [&node.left, &node.right] {
            if !(compares && matches!(**side, Expr::Path(_))) {
                self.visit_expr(side);
            }
        }
    }
    fn visit_expr_unary(&mut self, node: &'ast ExprUnary) {
        if let UnOp::Not(not) = &node.op {
            let code = self.code(bytes(&node.expr));
            let changed = not.span().byte_range();
            self.instead(Kind::Negation, bytes(node), &code, changed, "");
        }
        visit::visit_expr_unary(self, node);
    }
    fn visit_expr_lit(&mut self, node: &'ast syn::ExprLit) {
        let region = bytes(node);
        let new = match &node.lit {
            Lit::Bool(truth) => (!truth.value).to_string(),
            Lit::Int(number) => match number.base10_parse::<u128>() {
                Ok(value) if self.slice(region.clone()).starts_with("0x") => {
                    format!("{:#x}{}", value + 1, number.suffix())
                }
                Ok(value) => format!("{}{}", value + 1, number.suffix()),
                Err(_) => return,
            },
            _ => return,
        };
        self.instead(Kind::Literal, region.clone(), &new, region, &new);
    }
    fn visit_expr_range(&mut self, node: &'ast ExprRange) {
        if let Some(end) = &node.end
            && !matches!(**end, Expr::Lit(_))
        {
            let region = bytes(end);
            let sign = if matches!(node.limits, RangeLimits::HalfOpen(_)) { "+" } else { "-" };
            let shown = format!("{} {sign} 1", self.slice(region.clone()));
            let code = format!("({}) {sign} 1", self.code(region.clone()));
            self.instead(Kind::Range, region.clone(), &code, region, &shown);
        }
        visit::visit_expr_range(self, node);
    }
    fn visit_expr_method_call(&mut self, node: &'ast ExprMethodCall) {
        let name = node.method.to_string();
        let other = METHODS.iter().find_map(|(one, other)| match () {
            () if name == *one => Some(*other),
            () if name == *other => Some(*one),
            () => None,
        });
        if let Some(other) = other {
            let (region, place) = (bytes(node), bytes(&node.method));
            let (head, tail) = (region.start..place.start, place.end..region.end);
            let code = format!("{}{other}{}", self.slice(head), self.slice(tail));
            // Comments go, and lines are joined.
            let code =
                code.parse::<proc_macro2::TokenStream>().map_or(code, |code| code.to_string());
            self.instead(Kind::Method, region, &code, place, other);
        }
        self.visit_expr(&node.receiver);
        node.args.iter().for_each(|argument| self.visit_expr(argument));
    }
    fn visit_expr_call(&mut self, node: &'ast syn::ExprCall) {
        // A path that is called is no value that could be another one.
        if !matches!(*node.func, Expr::Path(_)) {
            self.visit_expr(&node.func);
        }
        node.args.iter().for_each(|argument| self.visit_expr(argument));
    }
    fn visit_expr_path(&mut self, node: &'ast syn::ExprPath) {
        let segments: Vec<String> =
            node.path.segments.iter().map(|part| part.ident.to_string()).collect();
        let [.., of, variant] = &segments[..] else { return };
        let Some((one, other)) = self.pairs.get(of) else { return };
        let new = match () {
            () if variant == one => other.clone(),
            () if variant == other => one.clone(),
            () => return,
        };
        let region = bytes(node);
        let Some(ident) = node.path.segments.last() else { return };
        let changed = bytes(&ident.ident);
        let code = format!("{}{new}", self.slice(region.start..changed.start));
        self.instead(Kind::Variant, region, &code, changed, &new);
    }

    // Constants, types and patterns are not looked at.
    fn visit_expr_repeat(&mut self, node: &'ast syn::ExprRepeat) {
        self.visit_expr(&node.expr);
    }
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}

fn instead(region: Range<usize>, code: &str) -> Edit {
    Edit::around(region, format!("(if {SWITCH}::on(__ID__) {{ {code} }} else {{ "), " })")
}

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn last(path: &Path) -> Option<String> {
    path.segments.last().map(|part| part.ident.to_string())
}

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(of) if matches!(of.op, BinOp::And(_)) => {
            has_let(&of.left) || has_let(&of.right)
        }
        _ => false,
    }
}

fn is_catch_all(pattern: &Pat) -> bool {
    matches!(pattern, Pat::Wild(_))
        || matches!(pattern, Pat::Ident(of) if of.subpat.is_none()
            && of.ident.to_string().starts_with(char::is_lowercase))
}

fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::Call(_) | Expr::MethodCall(_))
}

/// Whether a statement of this can be left out and what is around it may still make sense.
fn can_go(expr: &Expr) -> bool {
    match expr {
        Expr::Assign(_) | Expr::Return(_) | Expr::Continue(_) => true,
        Expr::Binary(_) => true, // only assignments are statements
        Expr::Try(inner) => is_call(&inner.expr),
        Expr::Unsafe(inner) => {
            matches!(&inner.block.stmts[..], [Stmt::Expr(only, None)] if is_call(only))
        }
        other => is_call(other),
    }
}

fn counterpart(op: &BinOp) -> Option<(Kind, &'static str)> {
    use Kind::{Arithmetic, Bits, Comparison, Logic};
    Some(match op {
        BinOp::Lt(_) => (Comparison, "<="),
        BinOp::Le(_) => (Comparison, "<"),
        BinOp::Gt(_) => (Comparison, ">="),
        BinOp::Ge(_) => (Comparison, ">"),
        BinOp::Eq(_) => (Comparison, "!="),
        BinOp::Ne(_) => (Comparison, "=="),
        BinOp::And(_) => (Logic, "||"),
        BinOp::Or(_) => (Logic, "&&"),
        BinOp::Add(_) => (Arithmetic, "-"),
        BinOp::Sub(_) => (Arithmetic, "+"),
        BinOp::Mul(_) => (Arithmetic, "/"),
        BinOp::Div(_) => (Arithmetic, "*"),
        BinOp::Rem(_) => (Arithmetic, "/"),
        BinOp::AddAssign(_) => (Arithmetic, "-="),
        BinOp::SubAssign(_) => (Arithmetic, "+="),
        BinOp::MulAssign(_) => (Arithmetic, "/="),
        BinOp::DivAssign(_) => (Arithmetic, "*="),
        BinOp::BitAnd(_) => (Bits, "|"),
        BinOp::BitOr(_) => (Bits, "&"),
        BinOp::BitXor(_) => (Bits, "&"),
        BinOp::Shl(_) => (Bits, ">>"),
        BinOp::Shr(_) => (Bits, "<<"),
        BinOp::BitAndAssign(_) => (Bits, "|="),
        BinOp::BitOrAssign(_) => (Bits, "&="),
        BinOp::BitXorAssign(_) => (Bits, "|="),
        BinOp::ShlAssign(_) => (Bits, ">>="),
        BinOp::ShrAssign(_) => (Bits, "<<="),
        _ => return None,
    })
}

/// What a function that returns this type can answer without any work.
fn answers(of: &Type) -> Vec<String> {
    let plain = |text: &str| vec![text.to_owned()];
    let path = match of {
        Type::Path(path) => &path.path,
        Type::Tuple(tuple) if tuple.elems.is_empty() => return vec![String::new()],
        Type::Tuple(_) => return plain("::core::default::Default::default()"),
        _ => return Vec::new(),
    };
    let Some(last) = path.segments.last() else { return Vec::new() };
    let inner = || match &last.arguments {
        syn::PathArguments::AngleBracketed(of) => of.args.iter().find_map(|of| match of {
            syn::GenericArgument::Type(of) => Some(answers(of)),
            _ => None,
        }),
        _ => None,
    };
    match last.ident.to_string().as_str() {
        "bool" => vec!["true".into(), "false".into()],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64" | "isize" => plain("0"),
        "Option" => plain("None"),
        "Result" => inner()
            .unwrap_or_default()
            .into_iter()
            .map(|inner| format!("Ok({})", if inner.is_empty() { "()" } else { &inner }))
            .collect(),
        "Self" => Vec::new(),
        _ => plain("::core::default::Default::default()"),
    }
}

/// Whether the block says that it is not reached, and nothing else.
fn is_unreachable(block: &Block) -> bool {
    let of = match &block.stmts[..] {
        [Stmt::Macro(of)] => &of.mac,
        [Stmt::Expr(Expr::Macro(of), _)] => &of.mac,
        _ => return false,
    };
    of.path.is_ident("unreachable")
}

/// Whether the block is this answer already.
fn is_just(block: &Block, answer: &str) -> bool {
    // A default method may only name its arguments in a `let _`, which does nothing.
    let is_noted =
        |of: &Stmt| matches!(of, Stmt::Local(local) if matches!(local.pat, Pat::Wild(_)));
    if answer.is_empty() {
        return block.stmts.iter().all(is_noted);
    }
    let [Stmt::Expr(only, None)] = &block.stmts[..] else { return false };
    match only {
        Expr::Lit(syn::ExprLit { lit: Lit::Bool(truth), .. }) => truth.value.to_string() == answer,
        Expr::Lit(syn::ExprLit { lit: Lit::Int(number), .. }) => number.base10_digits() == answer,
        Expr::Path(path) => path.path.is_ident(answer),
        Expr::Call(call) => {
            matches!(&*call.func, Expr::Path(path) if path.path.is_ident("Ok"))
                && answer == "Ok(())"
                && matches!(call.args.first(), Some(Expr::Tuple(of)) if of.elems.is_empty())
        }
        _ => false,
    }
}
