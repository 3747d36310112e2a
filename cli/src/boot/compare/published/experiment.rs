//! Which experiments there are, and how they are asked for.

/// Experiments, as they are named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Name {
    Pool,
    Touch,
    Split,
    Fragment,
    Compile,
}

impl Name {
    pub(super) const ALL: [Name; 5] =
        [Name::Pool, Name::Touch, Name::Split, Name::Fragment, Name::Compile];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Name::Pool => "pool",
            Name::Touch => "touch",
            Name::Split => "split",
            Name::Fragment => "fragment",
            Name::Compile => "compile",
        }
    }
    /// How much of it there may be, and is where nobody says: pages of 2 MiB, threads.
    const fn amounts(self) -> Option<(u64, u64, u64)> {
        match self {
            Name::Pool => Some((1, 256, 1 << 20)),
            Name::Touch | Name::Split => Some((1, 64, 1 << 20)),
            Name::Fragment => Some((2, 3, 255)),
            Name::Compile => None,
        }
    }
}

/// An experiment that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Experiment {
    pub(super) name: Name,
    pub(super) amount: u64,
}

impl Experiment {
    /// All of them, where none is named.
    pub(crate) const EACH: &'static str = "pool,touch,split,fragment,compile";

    /// `pool`, or `pool=64`.
    pub(crate) fn parse(text: &str) -> Result<Experiment, String> {
        let (word, amount) = match text.split_once('=') {
            Some((word, amount)) => (word, Some(amount)),
            None => (text, None),
        };
        let name = Name::ALL.into_iter().find(|name| name.word() == word);
        let name = name.ok_or_else(|| {
            let all = Name::ALL.map(Name::word).join(", ");
            format!("use one of {all}, with a number behind =, as pool=64")
        })?;
        let amount = match (name.amounts(), amount) {
            (None, None) => 1,
            (None, Some(_)) => return Err(format!("{word} takes no number; use {word}")),
            (Some((_, usual, _)), None) => usual,
            (Some((least, _, most)), Some(amount)) => {
                let number = amount.parse().ok().filter(|n| (least..=most).contains(n));
                number.ok_or_else(|| format!("use {word}= and a number from {least} to {most}"))?
            }
        };
        Ok(Experiment { name, amount })
    }
    /// What the first process is told.
    pub(super) fn words(&self) -> String {
        format!("{}={}", self.name.word(), self.amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_named_with_their_amount_or_the_usual_one() {
        let all: Vec<_> = Experiment::EACH.split(',').map(Experiment::parse).collect();
        assert_eq!(all.len(), Name::ALL.len());
        for (parsed, name) in all.into_iter().zip(Name::ALL) {
            assert_eq!(parsed.unwrap().name, name);
        }
        assert_eq!(Experiment::parse("pool=64").unwrap().words(), "pool=64");
        assert_eq!(Experiment::parse("fragment").unwrap().words(), "fragment=3");
        for (text, way) in [
            ("pools", "use one of pool, touch"),
            ("pool=0", "from 1 to"),
            ("fragment=1", "from 2 to 255"),
            ("split=", "split= and a number"),
            ("compile=2", "takes no number"),
        ] {
            let said = Experiment::parse(text).unwrap_err();
            assert!(said.contains(way), "{text}: {said}");
        }
    }
}
