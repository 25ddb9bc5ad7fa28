//! Types that have a JSON form: a plain mirror of the component model's, without its resources, streams and futures.

use wasmtime::component::types::Type;

/// How deep types may be nested. Each level is at most two levels of JSON, and serde_json reads 128.
const MAX_DEPTH: usize = 32;

/// The most types, fields, cases and names in one function's signature. A type that uses another twice, which uses a third twice,
/// doubles with every level: wasm shares what a schema has to spell out.
const MAX_PARTS: usize = 4096;

/// The most bytes in the names of one function's signature.
const MAX_NAME_BYTES: usize = 64 * 1024;

/// The longest name of a parameter or field: what Anthropic accepts as a property (`^[a-zA-Z0-9_.-]{1,64}$`).
const MAX_PROPERTY: usize = 64;

/// A type whose values have a JSON form.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Ty {
    /// `bool`
    Bool,
    /// `s8` to `u64`
    Int(Int),
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// `char`
    Char,
    /// `string`
    String,
    /// `list<T>`
    List(Box<Ty>),
    /// `list<T, N>`
    FixedList(Box<Ty>, u32),
    /// `map<K, V>`
    Map(Box<Ty>, Box<Ty>),
    /// `record`
    Record(Vec<Field>),
    /// `tuple`
    Tuple(Vec<Ty>),
    /// `variant`
    Variant(Vec<(Box<str>, Option<Ty>)>),
    /// `enum`
    Enum(Vec<Box<str>>),
    /// `option<T>`
    Option(Box<Ty>),
    /// `result<T, E>`
    Result(Option<Box<Ty>>, Option<Box<Ty>>),
    /// `flags`
    Flags(Vec<Box<str>>),
}

/// A field of a record, or a parameter of a function.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: Box<str>,
    pub(crate) ty: Ty,
}

/// An integer type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Int {
    S8,
    U8,
    S16,
    U16,
    S32,
    U32,
    S64,
    U64,
}

/// Why a function cannot be a tool.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unsupported(pub(crate) String);

impl Ty {
    /// Whether the type is `list<u8>`.
    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self, Self::List(item) if **item == Self::Int(Int::U8))
    }

    /// Whether a value of the type can be `null`. An option of such a type has to be told apart from it.
    pub(crate) fn is_nullable(&self) -> bool {
        matches!(self, Self::Option(_))
    }
}

impl Int {
    /// The smallest and the largest value.
    pub(crate) fn range(self) -> (i64, u64) {
        match self {
            Self::S8 => (i8::MIN.into(), 127),
            Self::U8 => (0, u8::MAX.into()),
            Self::S16 => (i16::MIN.into(), 32_767),
            Self::U16 => (0, u16::MAX.into()),
            Self::S32 => (i32::MIN.into(), 2_147_483_647),
            Self::U32 => (0, u32::MAX.into()),
            Self::S64 => (i64::MIN, 9_223_372_036_854_775_807),
            Self::U64 => (0, u64::MAX),
        }
    }

    /// Whether values can be beyond 2^53, which many JSON readers do not keep.
    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Self::S64 | Self::U64)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::S8 => "s8",
            Self::U8 => "u8",
            Self::S16 => "s16",
            Self::U16 => "u16",
            Self::S32 => "s32",
            Self::U32 => "u32",
            Self::S64 => "s64",
            Self::U64 => "u64",
        }
    }
}

/// What is left of the bounds on one function's types.
pub(super) struct Budget {
    parts: usize,
    name_bytes: usize,
    depth: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { parts: MAX_PARTS, name_bytes: MAX_NAME_BYTES, depth: MAX_DEPTH }
    }
}

impl Budget {
    /// A field or parameter.
    pub(super) fn field(&mut self, name: &str, ty: &Type) -> Result<Field, Unsupported> {
        if name.len() > MAX_PROPERTY {
            return Err(Unsupported(format!(
                "a name of more than {MAX_PROPERTY} characters, `{}…`",
                &name[..name.floor_char_boundary(40)]
            )));
        }
        Ok(Field { name: self.name(name)?, ty: self.ty(ty)? })
    }

    /// The mirror of a type.
    pub(super) fn ty(&mut self, ty: &Type) -> Result<Ty, Unsupported> {
        self.part()?;
        self.depth = self.depth.checked_sub(1).ok_or_else(|| Unsupported(format!("types nested more than {MAX_DEPTH} deep")))?;
        let mirror = self.mirror(ty)?;
        self.depth += 1;
        Ok(mirror)
    }

    fn mirror(&mut self, ty: &Type) -> Result<Ty, Unsupported> {
        Ok(match ty {
            Type::Bool => Ty::Bool,
            Type::S8 => Ty::Int(Int::S8),
            Type::U8 => Ty::Int(Int::U8),
            Type::S16 => Ty::Int(Int::S16),
            Type::U16 => Ty::Int(Int::U16),
            Type::S32 => Ty::Int(Int::S32),
            Type::U32 => Ty::Int(Int::U32),
            Type::S64 => Ty::Int(Int::S64),
            Type::U64 => Ty::Int(Int::U64),
            Type::Float32 => Ty::F32,
            Type::Float64 => Ty::F64,
            Type::Char => Ty::Char,
            Type::String => Ty::String,
            Type::List(list) => Ty::List(self.boxed(&list.ty())?),
            Type::FixedLengthList(list) => Ty::FixedList(self.boxed(&list.ty())?, list.len()),
            Type::Map(map) => Ty::Map(self.boxed(&map.key())?, self.boxed(&map.value())?),
            Type::Record(record) => {
                let fields = record.fields().map(|field| self.field(field.name, &field.ty));
                Ty::Record(fields.collect::<Result<_, _>>()?)
            }
            Type::Tuple(tuple) => Ty::Tuple(tuple.types().map(|ty| self.ty(&ty)).collect::<Result<_, _>>()?),
            Type::Variant(variant) => {
                let cases = variant.cases().map(|case| {
                    self.part()?;
                    Ok((self.name(case.name)?, case.ty.as_ref().map(|ty| self.ty(ty)).transpose()?))
                });
                Ty::Variant(cases.collect::<Result<_, _>>()?)
            }
            Type::Enum(cases) => Ty::Enum(self.names(cases.names())?),
            Type::Flags(flags) => Ty::Flags(self.names(flags.names())?),
            Type::Option(option) => Ty::Option(self.boxed(&option.ty())?),
            Type::Result(result) => {
                let mut side = |ty: Option<Type>| ty.as_ref().map(|ty| self.boxed(ty)).transpose();
                Ty::Result(side(result.ok())?, side(result.err())?)
            }
            Type::Own(_) | Type::Borrow(_) => return Err(without_json("a resource", "lives only inside one call")),
            Type::Future(_) => return Err(without_json("a `future`", "has no value yet when the call returns")),
            Type::Stream(_) => return Err(without_json("a `stream`", "has no end that a JSON value could hold")),
            Type::ErrorContext => return Err(without_json("an `error-context`", "lives only inside one call")),
        })
    }

    fn boxed(&mut self, ty: &Type) -> Result<Box<Ty>, Unsupported> {
        self.ty(ty).map(Box::new)
    }

    fn names<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> Result<Vec<Box<str>>, Unsupported> {
        names
            .map(|name| {
                self.part()?;
                self.name(name)
            })
            .collect()
    }

    fn name(&mut self, name: &str) -> Result<Box<str>, Unsupported> {
        self.name_bytes = self
            .name_bytes
            .checked_sub(name.len())
            .ok_or_else(|| Unsupported(format!("the names in its types come to more than {MAX_NAME_BYTES} bytes")))?;
        Ok(name.into())
    }

    fn part(&mut self) -> Result<(), Unsupported> {
        self.parts =
            self.parts.checked_sub(1).ok_or_else(|| Unsupported(format!("its types have more than {MAX_PARTS} parts")))?;
        Ok(())
    }
}

fn without_json(what: &str, why: &str) -> Unsupported {
    Unsupported(format!("{what} in its signature {why}: it has no JSON form"))
}
