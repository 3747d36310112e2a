//! Which mutants compile.
//!
//! All mutants are written and checked at once; those that an error points at are written in
//! another way, or left out, until there is no error. What came out is kept with the hash of the
//! file, so the next run has one check to make.

use crate::cargo::{Ask, Span, cargo, errors, packages, spans};
use crate::mutant::{Kind, Mutant};
use crate::survey::Survey;
use crate::tree::{Places, Tree};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::Path;

/// For each mutant the edit that compiles, if any does.
pub(crate) type Forms = Vec<Option<usize>>;

/// The file of what is kept.
const KEPT: &str = "viable.json";

/// How many rounds are made before giving up.
const ROUNDS: usize = 40;

/// Asks cargo about the mutants that `chosen` names until those compile. `chosen` is asked anew
/// when one turns out not to: the last answer is the one that holds.
pub(crate) fn settle(
    at: (&Survey, &Tree, &Path),
    ask: Ask,
    forms: &mut Forms,
    chosen: impl Fn(&Forms) -> Vec<usize>,
    say: &dyn Fn(String),
) -> Result<Vec<Value>, String> {
    let (survey, tree, folder) = at;
    for round in 1..=ROUNDS {
        let mut written = vec![None; forms.len()];
        let chosen = chosen(forms);
        chosen.iter().for_each(|n| written[*n] = forms[*n]);
        let places = tree.write(survey, &written)?;
        let rooms = chosen.iter().map(|n| survey.mutants[*n].room.as_str());
        let packages = rooms.flat_map(packages).copied().collect();
        let messages = cargo(tree, folder, ask, &packages)?;
        let errors = errors(&messages);
        say(format!("{ask}, round {round}: {} mutants, {} errors", chosen.len(), errors.len()));
        if errors.is_empty() {
            return Ok(messages);
        }
        let mut culprits = BTreeSet::new();
        for error in &errors {
            let spans = spans(error);
            let mut of = blame(&spans, &places);
            if of.is_empty() {
                of = left_out(&spans, &places, &survey.mutants);
            }
            if of.is_empty() {
                let text = error["rendered"].as_str().unwrap_or_default();
                return Err(format!("an error of the copy is no mutant's:\n{text}"));
            }
            culprits.extend(of);
        }
        for n in culprits {
            let next = forms[n].map(|form| form + 1);
            forms[n] = next.filter(|form| *form < survey.mutants[n].edits.len());
        }
        keep(survey, forms, folder)?;
    }
    Err(format!("{ROUNDS} rounds of cargo, and the copy does not compile"))
}

/// The mutants that an error is about: what it points at within their text, else the innermost one
/// around it, else those near it.
fn blame(spans: &[Span], places: &Places) -> BTreeSet<usize> {
    let within = |inner: &Range<usize>, outer: &Range<usize>| {
        outer.start <= inner.start && inner.end <= outer.end && !outer.is_empty()
    };
    let of = |span: &Span| places.get(&span.file).into_iter().flatten();
    let primary = || spans.iter().filter(|span| span.is_primary);
    let added = |span: &Span| -> Vec<usize> {
        let hit = of(span)
            .filter(|(_, place)| place.added.iter().any(|added| within(&span.bytes, added)));
        hit.map(|(n, _)| *n).collect()
    };
    let around = |span: &Span| -> Vec<usize> {
        let hit = of(span).filter(|(_, place)| within(&span.bytes, &place.region));
        let inner = hit.min_by_key(|(_, place)| place.region.len());
        inner.map(|(n, _)| *n).into_iter().collect()
    };
    let over = |span: &Span| -> Vec<usize> {
        let hit = of(span).filter(|(_, place)| within(&place.region, &span.bytes));
        hit.map(|(n, _)| *n).collect()
    };
    let mut blamed: BTreeSet<usize> = primary().flat_map(added).collect();
    for find in [&added as &dyn Fn(&Span) -> Vec<usize>, &around, &over] {
        if blamed.is_empty() {
            blamed = primary().flat_map(find).collect();
        }
        if blamed.is_empty() {
            blamed = spans.iter().flat_map(find).collect();
        }
    }
    if blamed.is_empty() {
        blamed = between(spans).iter().flat_map(over).collect();
    }
    blamed
}

/// The mutants that leave a statement out in the function of an error: where a `return` is left
/// out, the code behind it uses what is gone.
fn left_out(spans: &[Span], places: &Places, mutants: &[Mutant]) -> BTreeSet<usize> {
    let of = |span: &Span| places.get(&span.file);
    let Some((first, all)) = spans.iter().find_map(|span| Some((span, of(span)?))) else {
        return BTreeSet::new();
    };
    let nearest =
        all.iter().min_by_key(|(_, place)| place.region.start.abs_diff(first.bytes.start));
    let function = nearest.map(|(n, _)| &mutants[*n].name.function);
    let is_here = |n: &usize| {
        mutants[*n].kind == Kind::Statement && Some(&mutants[*n].name.function) == function
    };
    all.iter().map(|(n, _)| *n).filter(is_here).collect()
}

/// The stretch from the first to the last place that an error names in its file: a drop that is
/// left out shows far from where it was.
fn between(spans: &[Span]) -> Option<Span> {
    let first = spans.iter().find(|span| span.is_primary)?;
    let here = || spans.iter().filter(|span| span.file == first.file);
    let start = here().map(|span| span.bytes.start).min()?;
    let end = here().map(|span| span.bytes.end).max()?;
    Some(Span { bytes: start..end, ..first.clone() })
}

fn hash(text: &str, mutants: &[&Mutant]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    for edit in mutants.iter().flat_map(|mutant| &mutant.edits) {
        (&edit.before, &edit.after, &edit.region).hash(&mut hasher);
    }
    hasher.finish()
}

/// The mutants of each file, with the file's hash.
fn by_file(survey: &Survey) -> impl Iterator<Item = (&str, u64, Vec<usize>)> {
    survey.files.iter().map(|(path, text)| {
        let of = survey.of_file(path);
        let mutants: Vec<&Mutant> = of.iter().map(|n| &survey.mutants[*n]).collect();
        (path.as_str(), hash(text, &mutants), of)
    })
}

type Kept = BTreeMap<String, (u64, Forms)>;

/// What earlier runs found out; a mutant that none has seen may compile as it is.
pub(crate) fn recall(survey: &Survey, folder: &Path) -> Forms {
    let kept: Kept = fs::read(folder.join(KEPT))
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let mut forms = vec![Some(0); survey.mutants.len()];
    for (path, hash, of) in by_file(survey) {
        if let Some((then, known)) = kept.get(path)
            && *then == hash
        {
            of.iter().zip(known).for_each(|(n, form)| forms[*n] = *form);
        }
    }
    forms
}

fn keep(survey: &Survey, forms: &Forms, folder: &Path) -> Result<(), String> {
    let path = folder.join(KEPT);
    let kept: Kept = by_file(survey)
        .map(|(path, hash, of)| (path.to_owned(), (hash, of.iter().map(|n| forms[*n]).collect())))
        .collect();
    let text = serde_json::to_string(&kept).map_err(|why| why.to_string())?;
    fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))
}
