//! Values with names, as a reader of a report finds them.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name or a text; borrowed where the program knows it.
pub(crate) type Text = Cow<'static, str>;

/// Values with names, in an order that means something to a reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named<T>(Vec<(Text, T)>);

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named(Vec::new())
    }
}

impl<T> Named<T> {
    /// Adds a value behind the others.
    pub fn push(&mut self, name: impl Into<Cow<'static, str>>, value: T) {
        self.0.push((name.into(), value));
    }
    /// The values with their names, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.iter().find_map(|(other, value)| (other == name).then_some(value))
    }
}

impl<T, N: Into<Cow<'static, str>>> FromIterator<(N, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(values: I) -> Named<T> {
        Named(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Named<T>, D::Error> {
        struct InOrder<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Named<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut values = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    values.push((Cow::Owned(name), value));
                }
                Ok(Named(values))
            }
        }
        from.deserialize_map(InOrder(PhantomData))
    }
}
