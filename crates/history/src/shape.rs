//! What a history is made of: CPUs, steps, format, policies, what fails, what is planted.
//!
//! A seed alone gives a shape ([`Shape::of`]). The replay line prints what a caller overrides of
//! the CPUs, the steps, the style, the bug planted and the one allocation refused.

pub use crate::kinds::{Format, Live, Refused, Sizes, Style};
use crate::plant::Plant;
use crate::rng::Rng;
use core::fmt;

/// What one history is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// CPUs that work, 1 to 64.
    pub cpus: usize,
    /// Operations in all.
    pub steps: usize,
    /// How CPUs share addresses.
    pub style: Style,
    /// The page-table format.
    pub format: Format,
    /// Which allocations are refused.
    pub refused: Refused,
    /// Rules about live entries.
    pub live: Live,
    /// Sizes of folios.
    pub sizes: Sizes,
    /// Pages that each space may charge, for half of the spaces; 0 for no limit.
    pub limit: u64,
    /// The bug planted, if any.
    pub plant: Option<Plant>,
}

impl Shape {
    /// The shape that a seed gives.
    pub fn of(seed: u64) -> Shape {
        let mut rng = Rng::new(seed, 1);
        let style = rng.weighted(&[
            (5, Style::Racing),
            (1, Style::Pooled),
            (4, Style::Partitioned),
            (1, Style::Folding),
            (1, Style::Ranges),
        ]);
        Shape {
            cpus: *rng.pick(&[2, 2, 3, 4, 4, 4, 6, 8, 8, 12, 16, 32, 64]),
            steps: 2400,
            style,
            format: rng.weighted(&[
                (6, Format::X86Four),
                (2, Format::X86Five),
                (1, Format::Aarch64),
                (1, Format::Sv39),
                (1, Format::Sv48),
            ]),
            refused: *rng.pick(&[
                Refused::Nothing,
                Refused::Nothing,
                Refused::OneIn(60),
                Refused::OneIn(15),
            ]),
            limit: *rng.pick(&[0, 0, 0, 700, 40]),
            live: if rng.once_in(6) { Live::BreakBeforeMake } else { Live::Usual },
            sizes: Sizes::Any,
            plant: None,
        }
    }

    /// The shape in which `plant` has its chance: as [`of`](Shape::of), with what the plant needs.
    pub fn planted(seed: u64, plant: Plant) -> Shape {
        let usual = Shape::of(seed);
        let bug = plant.bug();
        // Most bugs are of programs' memory.
        let style = match usual.style {
            Style::Racing | Style::Pooled => Style::Racing,
            Style::Partitioned | Style::Folding | Style::Ranges | Style::Objects => {
                Style::Partitioned
            }
        };
        Shape {
            cpus: usual.cpus.clamp(3, 8),
            style: bug.style.unwrap_or(style),
            format: bug.format,
            refused: Refused::Nothing,
            live: bug.live,
            sizes: bug.sizes,
            limit: 0,
            plant: Some(plant),
            ..usual
        }
    }

    /// The command that replays a history of this shape.
    pub fn replay(&self, seed: u64) -> String {
        let usual = match self.plant {
            Some(plant) => Shape::planted(seed, plant),
            None => Shape::of(seed),
        };
        let mut line = format!("foliant sim --seed {seed}");
        if let Some(plant) = self.plant {
            line += &format!(" --plant {plant}");
        }
        if self.cpus != usual.cpus {
            line += &format!(" --cpus {}", self.cpus);
        }
        if self.steps != usual.steps {
            line += &format!(" --steps {}", self.steps);
        }
        if self.style != usual.style {
            line += &format!(" --style {}", self.style);
        }
        if let Refused::Kth(k) = self.refused {
            line += &format!(" --fail {k}");
        }
        line
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} CPUs, {} steps, {:?}", self.style, self.cpus, self.steps, self.format)?;
        match self.refused {
            Refused::Nothing => {}
            Refused::OneIn(every) => write!(f, ", 1 allocation in {every} refused")?,
            Refused::Kth(k) => write!(f, ", allocation {k} refused")?,
        }
        if self.live == Live::BreakBeforeMake {
            f.write_str(", break before make")?;
        }
        if self.limit > 0 {
            write!(f, ", limit {} pages", self.limit)?;
        }
        if let Some(plant) = self.plant {
            write!(f, ", planted: {plant}")?;
        }
        Ok(())
    }
}
