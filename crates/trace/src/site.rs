//! Where in a program's code something was asked for: the same in each run of the same files,
//! whatever addresses they were mapped at.

use std::fmt;

/// Where in a program's code a mapping was asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site {
    /// The file's name without folders, `libc.so.6`.
    pub object: String,
    /// In that file, of the instruction behind the call.
    pub offset: u64,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.object, self.offset)
    }
}

impl Site {
    /// Reads what is displayed: `libc.so.6+0x9f2e1`.
    pub fn parse(text: &str) -> Option<Site> {
        let (object, offset) = text.rsplit_once("+0x")?;
        let is_hex = offset.bytes().all(|b| b.is_ascii_hexdigit());
        let offset = u64::from_str_radix(offset, 16).ok().filter(|_| is_hex)?;
        let is_name = !object.is_empty() && !object.contains('/');
        is_name.then(|| Site { object: object.to_owned(), offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_read_as_it_is_shown_and_nothing_else_is() {
        for offset in [0, 0x9f2e1, u64::MAX] {
            let site = Site { object: "liba+b.so.1".to_owned(), offset };
            assert_eq!(Site::parse(&site.to_string()), Some(site));
        }
        let long = format!("a+0x1{}", "0".repeat(16));
        for text in ["", "a", "a+12", "+0x12", "a+0x", "a+0x-1", "a+0x+1", "lib/a+0x1", &long] {
            assert_eq!(Site::parse(text), None, "{text}");
        }
    }
}
