//! A sequence, carried out on both sides.
//!
//! **Invariants**
//! - R1. After each call both sides are asked for its answer, the areas of the process, and the
//!   pages around what it named. The first difference ends the sequence: what follows would differ
//!   by it.
//! - R2. A page is read only where it is there: looking brings nothing.

use crate::call::{Answer, Bases, Call, Name};
use crate::child::Program;
use crate::host::Host;
use crate::machine::{self, Likeness, Machine};
use crate::reasons::Reason;
use crate::side::{AreaSeen, Failed, PageSeen, Side, areas_of_smaps};
use core::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};

/// Pages that are looked at after a call, from the first that it names on.
const LOOKED_AT: u64 = 24;
/// The line of page tables in `status`.
const TABLES: &str = "VmPTE:";
/// Pages of an area that are looked at in the end.
const IN_THE_END: u64 = 1600;

/// What differs where pages of an area do that maps a file.
const OF_FILE: &str = "pages of a file";

/// A difference, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Which call, counted from 0; the number of calls where it showed in the end.
    pub at: usize,
    /// What differs.
    pub what: &'static str,
    /// What Linux says.
    pub host: String,
    /// What the other side says.
    pub ours: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "after call {}: {} differ\n  Linux    {}\n  Foliant  {}",
            self.at, self.what, self.host, self.ours
        )
    }
}

/// What was compared.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Compared {
    /// Calls carried out on both sides.
    pub calls: u64,
    /// Bytes of programs' memory.
    pub bytes: u64,
    /// Pages, whether they are there.
    pub pages: u64,
    /// Lines of `maps`.
    pub areas: u64,
}

impl Compared {
    /// Both together.
    pub fn add(&mut self, more: &Compared) {
        self.calls += more.calls;
        self.bytes += more.bytes;
        self.pages += more.pages;
        self.areas += more.areas;
    }
}

/// How a sequence ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Both sides agree.
    Agreed,
    /// They differ, for a reason that is written down.
    Reason(Reason),
    /// They differ.
    Differs(Difference),
}

/// Carries calls out on both sides.
pub(crate) fn run(
    program: &Program,
    like: &Likeness,
    calls: &[Call],
) -> io::Result<(Compared, End)> {
    let mut host = Host::start(program)?;
    let (bases, foreign) = (host.bases(), host.foreign.clone());
    let mut compared = Compared::default();
    let work = AssertUnwindSafe(|| {
        machine::with(like, bases, &foreign, |ours| {
            Both { host: &mut host, ours, bases, compared: &mut compared }.run(calls)
        })
    });
    let end = match panic::catch_unwind(work) {
        Ok(Ok(end)) => end,
        Ok(Err(Failed::Host(why))) => return Err(why),
        Ok(Err(Failed::Ours(what))) => wrong(calls, what),
        Err(panicked) => {
            let text = panicked.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panicked.downcast_ref().map(|text: &&str| (*text).into()));
            wrong(calls, format!("a panic: {}", text.unwrap_or_default()))
        }
    };
    Ok((compared, end))
}

/// What the crate's side never should do, as a difference.
fn wrong(calls: &[Call], what: String) -> End {
    let (at, host) = (calls.len(), "goes on".to_owned());
    End::Differs(Difference { at, what: "ends", host, ours: what })
}

/// How a sequence ends by a difference after these calls.
fn ended(calls: &[Call], difference: Difference) -> End {
    let reason = match difference.what {
        "pages" => Reason::of_pages(calls),
        "pagemap" => Reason::of_words(calls, &difference.host, &difference.ours),
        "size" => Reason::of_size(calls, &difference.host),
        OF_FILE => Reason::of_file_pages(calls, &difference.host, &difference.ours),
        "smaps" => Reason::of_smaps(calls, &difference.host, &difference.ours),
        _ => None,
    };
    reason.map_or(End::Differs(difference), End::Reason)
}

struct Both<'b, 'a, 'm> {
    host: &'b mut Host,
    ours: &'b mut Machine<'a, 'm>,
    bases: Bases,
    compared: &'b mut Compared,
}

/// A difference that was seen, or none.
type Seen = Option<Named>;
/// What differs, and what both sides say.
type Named = (&'static str, String, String);

impl Both<'_, '_, '_> {
    fn run(&mut self, calls: &[Call]) -> Result<End, Failed> {
        for (at, call) in calls.iter().enumerate() {
            let who = call.who % self.host.processes();
            // A child has no descriptor for its own memory.
            if call.name == Name::Userfault && who > 0 {
                continue;
            }
            self.compared.calls += 1;
            let host = self.host.call(who, call)?;
            let ours = self.ours.call(who, call)?;
            let so_far = &calls[..=at];
            if let Some(reason) = Reason::of_answers(so_far, &host, &ours) {
                return Ok(End::Reason(reason));
            }
            let seen = match host == ours {
                false => Some(("answers", host.to_string(), ours.to_string())),
                true => self.after(who, call, &host)?,
            };
            if let Some((what, host, ours)) = seen {
                return Ok(ended(so_far, Difference { at, what, host, ours }));
            }
        }
        // Tables come last: they often differ for a reason, and all else is to be seen before.
        let all = (0..self.host.processes()).map(|who| (who, false));
        let tables = (0..self.host.processes()).map(|who| (who, true));
        for (who, is_over) in all.chain(tables) {
            let seen = match is_over {
                false => self.all(who)?,
                true => self.size(who, |name| name == TABLES)?,
            };
            if let Some((what, host, ours)) = seen {
                let at = calls.len();
                return Ok(ended(calls, Difference { at, what, host, ours }));
            }
        }
        Ok(End::Agreed)
    }

    /// Compares what a call may have changed.
    fn after(&mut self, who: usize, call: &Call, answer: &Answer) -> Result<Seen, Failed> {
        if call.name == Name::Exit {
            return Ok(None);
        }
        let areas = match self.areas(who)? {
            Ok(areas) => areas,
            Err(seen) => return Ok(Some(seen)),
        };
        let [first, _, _, _, second, _] = call.values(&self.bases);
        let third = match answer {
            Answer::Word(word) => *word,
            _ => first,
        };
        for start in [first, second, third] {
            let start = start & !4095;
            let end = start.saturating_add(LOOKED_AT * 4096);
            if let Some(seen) = self.pages(who, &areas, start, end)? {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }
    /// Compares everything.
    fn all(&mut self, who: usize) -> Result<Seen, Failed> {
        let areas = match self.areas(who)? {
            Ok(areas) => areas,
            Err(seen) => return Ok(Some(seen)),
        };
        for area in &areas {
            let end = area.end.min(area.start + IN_THE_END * 4096);
            if let Some(seen) = self.pages(who, &areas, area.start, end)? {
                return Ok(Some(seen));
            }
        }
        match self.smaps(who)? {
            None => self.size(who, |name| name != TABLES),
            seen => Ok(seen),
        }
    }
    /// Compares how large a process is, by the lines that are `compared`. The host's first one was
    /// larger before the first call.
    fn size(&self, who: usize, compared: impl Fn(&str) -> bool) -> Result<Seen, Failed> {
        let (host, ours) = (self.host.size(who)?, self.ours.size(who)?);
        let differs = |((name, host), (_, ours)): &(&(String, u64), &(String, u64))| match &name[..]
        {
            "VmPeak:" if who == 0 => *host != *ours.max(&self.host.began_with()),
            _ => host != ours,
        };
        let say = |(name, value): &(String, u64)| format!("{name} {value} of process {who}");
        let mut all = host.iter().zip(&ours).filter(|((name, _), _)| compared(name));
        Ok(all.find(differs).map(|(host, ours)| ("size", say(host), say(ours))))
    }
    /// Compares the texts of areas, to the byte where they are compared.
    fn smaps(&self, who: usize) -> Result<Seen, Failed> {
        let areas = |text: String| areas_of_smaps(&text, &self.host.foreign);
        let (host, ours) = (areas(self.host.smaps(who)?), areas(self.ours.smaps(who)?));
        let differing = host.iter().zip(&ours).find(|(host, ours)| host != ours);
        Ok(differing.map(|(host, ours)| ("smaps", host.clone(), ours.clone())))
    }

    fn areas(&mut self, who: usize) -> Result<Result<Vec<AreaSeen>, Named>, Failed> {
        let (host, ours) = (self.host.areas(who)?, self.ours.areas(who)?);
        self.compared.areas += host.len() as u64;
        if host == ours {
            return Ok(Ok(host));
        }
        let only = |these: &[AreaSeen], those: &[AreaSeen]| {
            let missing: Vec<String> =
                these.iter().filter(|a| !those.contains(a)).map(AreaSeen::to_string).collect();
            if missing.is_empty() { "nothing else".to_owned() } else { missing.join(", ") }
        };
        Ok(Err(("areas", only(&host, &ours), only(&ours, &host))))
    }

    fn pages(
        &mut self,
        who: usize,
        areas: &[AreaSeen],
        start: u64,
        end: u64,
    ) -> Result<Seen, Failed> {
        for area in areas {
            let (from, to) = (area.start.max(start), area.end.min(end));
            if from >= to {
                continue;
            }
            let host = self.host.pages(who, area, &(from..to))?;
            let ours = self.ours.pages(who, area, &(from..to))?;
            self.compared.pages += host.len() as u64;
            self.compared.bytes += 8 * host.iter().filter(|page| page.is_there()).count() as u64;
            let differing = host.iter().zip(&ours).position(|(host, ours)| host != ours);
            if let Some(nth) = differing {
                let at = from + nth as u64 * 4096;
                let what = match host[nth].is_other(ours[nth]) {
                    _ if area.is_of_file() => OF_FILE,
                    false => "pagemap",
                    true => "pages",
                };
                let say = |page: &PageSeen| format!("{at:#x} of process {who} {page}");
                return Ok(Some((what, say(&host[nth]), say(&ours[nth]))));
            }
        }
        Ok(None)
    }
}
