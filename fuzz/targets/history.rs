//! Calls of the manager, on one to four simulated CPUs, beside the naive models and under every
//! checker.
//!
//! The first bytes say what the machine is like, the others decide every choice of the history:
//! which call, where, how large. When they have run out the history goes on by chance for a moment,
//! and ends with an audit.
#![no_main]

use arbitrary::Arbitrary;
use foliant_history::{Format, History, Live, Refused, Shape, Sizes, Style};
use libfuzzer_sys::{Corpus, fuzz_target};

/// Bytes that an operation takes, about.
const BYTES_PER_STEP: usize = 4;
/// Longer histories find little that shorter ones do not, and take long.
const STEPS_MAX: usize = 150;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    style: u8,
    format: u8,
    cpus: u8,
    refused: u8,
    limit: u8,
    seed: u8,
    draws: &'a [u8],
}

fuzz_target!(|input: Input<'_>| -> Corpus {
    if input.draws.len() > STEPS_MAX * BYTES_PER_STEP {
        return Corpus::Reject;
    }
    let styles = Style::ALL;
    let formats = [Format::X86Four, Format::X86Five, Format::Aarch64, Format::Sv39, Format::Sv48];
    let shape = Shape {
        cpus: 1 + usize::from(input.cpus % 4),
        steps: input.draws.len() / BYTES_PER_STEP,
        style: styles[usize::from(input.style) % styles.len()],
        format: formats[usize::from(input.format) % formats.len()],
        refused: match input.refused {
            0..128 => Refused::Nothing,
            k @ 128..192 => Refused::Kth(u64::from(k - 127)),
            every => Refused::OneIn(u32::from(every - 190)),
        },
        live: if input.format >= 128 { Live::BreakBeforeMake } else { Live::Usual },
        sizes: if input.limit >= 128 { Sizes::Auto } else { Sizes::Any },
        limit: [0, 40, 700][usize::from(input.limit) % 3],
        plant: None,
    };
    let report = History::run_drawn(u64::from(input.seed), shape, input.draws);
    assert!(report.is_clean(), "{report}");
    Corpus::Keep
});
