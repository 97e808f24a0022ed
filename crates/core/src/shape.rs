//! The shape of what is kept. Its bytes do not say it ([`crate::wire`]): read as another type than they were written as, they are
//! taken for something else, or for damage. So tests hold every type that is kept to the shape it had, field by field and variant
//! by variant.

use crate::wire::RECORDED;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

/// Holds a type to the shape that is kept under this name.
///
/// # Panics
/// It has another.
pub fn hold<T: DeserializeOwned>(name: &str) {
    Shapes::default().with::<T>(name).hold(name);
}

/// Types, and how each of them is read. A type is offered values until it has shown all of itself.
#[derive(Debug, Default)]
pub struct Shapes {
    /// What was asked for.
    roots: Vec<String>,
    /// Every type that has a name; one that is no enumeration has a single variant.
    types: Vec<Type>,
    /// Their numbers, by the visitors with which they are read: different ones may have the same name.
    numbers: BTreeMap<&'static str, usize>,
    /// Those that are being read, outermost first, and which variant of each.
    open: Vec<(usize, usize)>,
    /// How many variants have been seen.
    seen: usize,
}

#[derive(Debug)]
struct Type {
    name: &'static str,
    label: String,
    enumeration: bool,
    variants: Vec<Variant>,
}

#[derive(Debug, Default)]
struct Variant {
    name: &'static str,
    /// Once it has been read.
    shape: Option<String>,
    /// The types that it holds.
    below: BTreeSet<usize>,
}

impl Shapes {
    /// Adds a type and all that it is made of.
    ///
    /// # Panics
    /// It takes none of the values that it is offered, or holds itself in its first variant.
    #[must_use]
    pub fn with<T: DeserializeOwned>(mut self, what: &str) -> Shapes {
        loop {
            let (before, mut shape) = (self.seen, String::new());
            if let Err(refused) = T::deserialize(Reader { shapes: &mut self, out: &mut shape }) {
                panic!("{what}: {refused}, within {shape}");
            }
            let whole = |shown: &Type| shown.variants.iter().all(|variant| variant.shape.is_some());
            if self.types.iter().all(whole) {
                self.roots.push(format!("{what}: {shape}"));
                return self;
            }
            assert!(self.seen > before, "{what}: a variant cannot be reached");
        }
    }

    /// What was added, and then each type, with its variants by their numbers.
    #[must_use]
    pub fn told(&self) -> String {
        let mut told: String = self.roots.iter().map(|root| format!("{root}\n")).collect();
        let mut types: Vec<&Type> = self.types.iter().collect();
        types.sort_by_key(|shown| &shown.label);
        for Type { label, enumeration, variants, .. } in types {
            told += if *enumeration { "\n" } else { "" };
            told += label;
            for (number, Variant { name, shape, .. }) in variants.iter().enumerate() {
                let shape = shape.as_deref().unwrap_or("?");
                // Writing into a string cannot fail.
                let _ = match enumeration {
                    true => write!(told, "\n  {number} {name}{shape}"),
                    false => write!(told, "{shape}"),
                };
            }
            told.push('\n');
        }
        told
    }

    /// Holds it to what is kept under this name of [`RECORDED`]. Where nothing is, it is written if UPDATE_EXPECT is set.
    ///
    /// # Panics
    /// It is another, or none is kept.
    pub fn hold(&self, name: &str) {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/recorded")).join(RECORDED.to_string());
        let path: PathBuf = folder.join(format!("{name}.txt"));
        let (told, shown) = (self.told(), path.display());
        match std::fs::read_to_string(&path) {
            Ok(kept) if kept == told => {}
            Ok(kept) => {
                let differs = |(number, (new, old)): (usize, (&str, &str))| {
                    (new != old).then(|| format!("line {}: {new}\nand was: {old}", number + 1))
                };
                let ends =
                    || format!("it has {} lines, and had {}", told.lines().count(), kept.lines().count());
                let what = told.lines().zip(kept.lines()).enumerate().find_map(differs).unwrap_or_else(ends);
                panic!(
                    "{shown}: what nodes keep has another shape than what nodes of format {RECORDED} have written.\n{what}\n\
                     What was written must be read for ever, and never be taken for something else:\n\
                     - only a variant behind the last of its enumeration leaves what was written readable; in place of another \
                     field or another order, add a variant, or see to it that what was written is read as before;\n\
                     - raise RECORDED in crates/core/src/wire.rs, so that earlier versions refuse what is written from now on;\n\
                     - run the tests with UPDATE_EXPECT=1, and `make corpus`, which write the new shapes beside the former \
                     and the data of the new format beside that of the former, which stays; commit both.\n\
                     Where only a name has changed, or what nobody has data of: delete this file in place of raising the number."
                );
            }
            Err(_) if std::env::var_os("UPDATE_EXPECT").is_some() => {
                let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, told));
                assert!(written.is_ok(), "{shown}: {written:?}");
            }
            Err(error) => panic!("{shown}: {error}: run the tests with UPDATE_EXPECT=1, and commit it"),
        }
    }

    /// The number of the type that is read with this visitor.
    fn number(
        &mut self,
        visitor: &'static str,
        name: &'static str,
        variants: Option<&[&'static str]>,
    ) -> usize {
        if let Some(&number) = self.numbers.get(visitor) {
            return number;
        }
        let label = match self.types.iter().filter(|other| other.name == name).count() {
            0 => name.to_owned(),
            others => format!("{name}'{}", others + 1),
        };
        let (enumeration, names) = (variants.is_some(), variants.unwrap_or(&[""]));
        let variants = names.iter().map(|name| Variant { name, ..Variant::default() }).collect();
        self.types.push(Type { name, label, enumeration, variants });
        self.numbers.insert(visitor, self.types.len() - 1);
        self.types.len() - 1
    }

    /// Begins to read a type; answers which variant of it.
    fn enter(&mut self, number: usize) -> Result<usize, Refused> {
        if let Some(&(above, variant)) = self.open.last() {
            self.types[above].variants[variant].below.insert(number);
        }
        let within = self.is_open(number);
        self.open.push((number, usize::MAX));
        let variants = &self.types[number].variants;
        let chosen = if within {
            // One that ends.
            let ends = |variant: &Variant| {
                variant.shape.is_some() && !self.reaches(variant, &|below| self.is_open(below))
            };
            variants.iter().position(ends)
        } else {
            let new =
                |number: usize| self.types[number].variants.iter().any(|variant| variant.shape.is_none());
            let leads =
                |variant: &Variant| self.reaches(variant, &|below| !self.is_open(below) && new(below));
            let unseen = variants.iter().position(|variant| variant.shape.is_none());
            unseen.or_else(|| variants.iter().position(leads)).or((!variants.is_empty()).then_some(0))
        };
        let chosen = chosen.ok_or_else(|| {
            Refused(format!("{} has no value, or its first variant holds itself", self.types[number].label))
        })?;
        if let Some(last) = self.open.last_mut() {
            last.1 = chosen;
        }
        Ok(chosen)
    }

    /// What was begun last has been read.
    fn leave(&mut self, shape: String) {
        if let Some((number, variant)) = self.open.pop() {
            let kept = &mut self.types[number].variants[variant].shape;
            self.seen += usize::from(kept.is_none());
            *kept = Some(shape);
        }
    }

    fn is_open(&self, number: usize) -> bool {
        self.open.iter().any(|(open, _)| *open == number)
    }

    /// Whether a type that is wanted lies below a variant; not behind those that are open.
    fn reaches(&self, variant: &Variant, wanted: &dyn Fn(usize) -> bool) -> bool {
        let mut found = variant.below.clone();
        let mut left: Vec<usize> = found.iter().copied().collect();
        while let Some(number) = left.pop() {
            if wanted(number) {
                return true;
            }
            if !self.is_open(number) {
                let below = self.types[number].variants.iter().flat_map(|variant| &variant.below);
                left.extend(below.filter(|below| found.insert(**below)));
            }
        }
        false
    }
}

/// Offers a value of whatever is asked for, and says what that was.
struct Reader<'a> {
    shapes: &'a mut Shapes,
    out: &'a mut String,
}

impl<'a> Reader<'a> {
    /// Reads a type that has a name by `read`, which is given the shape to write.
    fn named<T>(
        self,
        (visitor, name): (&'static str, &'static str),
        variants: Option<&[&'static str]>,
        read: impl FnOnce(Reader<'_>, usize) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let Reader { shapes, out } = self;
        let number = shapes.number(visitor, name, variants);
        out.push_str(&shapes.types[number].label);
        let (variant, mut shape) = (shapes.enter(number)?, String::new());
        let value = read(Reader { shapes: &mut *shapes, out: &mut shape }, variant)?;
        shapes.leave(shape);
        Ok(value)
    }

    /// Reads so many values between two brackets.
    fn several<'de, V: Visitor<'de>>(
        self,
        [begin, end]: [&str; 2],
        count: usize,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let Reader { shapes, out } = self;
        out.push_str(begin);
        let value = visitor.visit_seq(Several { shapes, out: &mut *out, count, names, next: 0 })?;
        out.push_str(end);
        Ok(value)
    }
}

macro_rules! plain {
    ($($method:ident $visit:ident $value:expr, $name:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            self.out.push_str($name);
            visitor.$visit($value)
        }
    )*};
}

// Numbers are one, since some types have no zero.
impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Refused;

    plain! {
        deserialize_bool visit_bool true, "bool";
        deserialize_i8 visit_i8 1, "i8";
        deserialize_i16 visit_i16 1, "i16";
        deserialize_i32 visit_i32 1, "i32";
        deserialize_i64 visit_i64 1, "i64";
        deserialize_i128 visit_i128 1, "i128";
        deserialize_u8 visit_u8 1, "u8";
        deserialize_u16 visit_u16 1, "u16";
        deserialize_u32 visit_u32 1, "u32";
        deserialize_u64 visit_u64 1, "u64";
        deserialize_u128 visit_u128 1, "u128";
        deserialize_f32 visit_f32 1.0, "f32";
        deserialize_f64 visit_f64 1.0, "f64";
        deserialize_char visit_char 'a', "char";
        deserialize_str visit_str "", "text";
        deserialize_string visit_str "", "text";
        deserialize_bytes visit_bytes &[], "bytes";
        deserialize_byte_buf visit_bytes &[], "bytes";
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.out.push_str("()");
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.out.push_str("maybe ");
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.named((type_name::<V>(), name), None, |reader, _| {
            let Reader { shapes, out } = reader;
            out.push('(');
            let value = visitor.visit_newtype_struct(Reader { shapes, out: &mut *out })?;
            out.push(')');
            Ok(value)
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.named((type_name::<V>(), name), None, |reader, _| {
            reader.several(["(", ")"], length, &[], visitor)
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.named((type_name::<V>(), name), None, |reader, _| {
            reader.several([" { ", " }"], fields.len(), fields, visitor)
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.named((type_name::<V>(), name), Some(variants), |reader, variant| {
            visitor.visit_enum(Chosen { reader, variant })
        })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.several(["[", "]"], 1, &[], visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Refused> {
        self.several(["(", ")"], length, &[], visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let Reader { shapes, out } = self;
        out.push('{');
        let value = visitor.visit_map(Several { shapes, out: &mut *out, count: 1, names: &[], next: 0 })?;
        out.push('}');
        Ok(value)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(Refused::custom("it asks what it is"))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(Refused::custom("it asks for a name"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(Refused::custom("it asks for anything"))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Values one after another; of a map, one key and its value.
struct Several<'a> {
    shapes: &'a mut Shapes,
    out: &'a mut String,
    count: usize,
    /// Of fields; empty where they have none.
    names: &'static [&'static str],
    next: usize,
}

impl Several<'_> {
    fn read<'de, T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refused> {
        seed.deserialize(Reader { shapes: &mut *self.shapes, out: &mut *self.out })
    }
}

impl<'de> SeqAccess<'de> for Several<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        if self.next == self.count {
            return Ok(None);
        }
        if self.next > 0 {
            self.out.push_str(", ");
        }
        if let Some(name) = self.names.get(self.next) {
            self.out.push_str(name);
            self.out.push_str(": ");
        }
        self.next += 1;
        self.read(seed).map(Some)
    }
}

impl<'de> MapAccess<'de> for Several<'_> {
    type Error = Refused;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        if self.next == self.count {
            return Ok(None);
        }
        self.next += 1;
        self.read(seed).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refused> {
        self.out.push_str(": ");
        self.read(seed)
    }
}

/// The variant that an enumeration is to be.
struct Chosen<'a> {
    reader: Reader<'a>,
    variant: usize,
}

impl<'de, 'a> EnumAccess<'de> for Chosen<'a> {
    type Error = Refused;
    type Variant = Reader<'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Reader<'a>), Refused> {
        // No enumeration has as many variants as this cannot say.
        let number = IntoDeserializer::<Refused>::into_deserializer(self.variant as u32);
        Ok((seed.deserialize(number)?, self.reader))
    }
}

impl<'de> VariantAccess<'de> for Reader<'_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refused> {
        let Reader { shapes, out } = self;
        out.push('(');
        let value = seed.deserialize(Reader { shapes, out: &mut *out })?;
        out.push(')');
        Ok(value)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Refused> {
        self.several(["(", ")"], length, &[], visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.several([" { ", " }"], fields.len(), fields, visitor)
    }
}

/// Why a type cannot be shown.
#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl serde::de::Error for Refused {
    fn custom<T: fmt::Display>(cause: T) -> Refused {
        Refused(cause.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde::Deserialize;
    use std::sync::Arc;

    #[derive(Deserialize)]
    struct Pair<T>(#[allow(dead_code, reason = "only its shape is asked for")] u16, #[allow(dead_code)] T);

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only its shape is asked for")]
    enum Tree {
        Leaf,
        Fork { left: Arc<Held>, right: Vec<Tree> },
        Named(Pair<Kind>, Option<Kind>),
    }

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only its shape is asked for")]
    struct Held {
        tree: Box<Tree>,
        kinds: std::collections::BTreeMap<Pair2, [u8; 2]>,
    }

    #[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    #[serde(rename = "Pair")]
    struct Pair2(std::num::NonZeroU64);

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only its shape is asked for")]
    enum Kind {
        One,
        Other(crate::Blob),
    }

    #[test]
    fn all_of_a_type_is_seen_also_behind_what_holds_itself() {
        let told = Shapes::default().with::<Tree>("kept").with::<Vec<Pair<bool>>>("beside").told();
        let golden = expect![[r#"
            kept: Tree
            beside: [Pair'3]
            Held { tree: Tree, kinds: {Pair: (u8, u8)} }

            Kind
              0 One
              1 Other(bytes)
            Pair(u64)
            Pair'2(u16, Kind)
            Pair'3(u16, bool)

            Tree
              0 Leaf
              1 Fork { left: Held, right: [Tree] }
              2 Named(Pair'2, maybe Kind)
        "#]];
        golden.assert_eq(&told);
    }
}
