//! Any type, any value: JSON to value to JSON is the identity, and the schema says exactly what is accepted.

use proptest::collection::{btree_set, hash_set, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Map, Value, json};
use wasmtime::component::Val;

use crate::sandbox::typed::from_val::from_val;
use crate::sandbox::typed::schema::{result, schema};
use crate::sandbox::typed::to_val::to_val;
use crate::sandbox::typed::ty::{Field, Int, Ty};

fn names(most: usize) -> impl Strategy<Value = Vec<Box<str>>> {
    btree_set("[a-z][a-z0-9]{0,3}(-[a-z0-9]{1,3})?", 1..=most)
        .prop_map(|names| names.into_iter().map(Into::into).collect())
        .prop_shuffle()
}

fn ints() -> impl Strategy<Value = Int> {
    select(vec![Int::S8, Int::U8, Int::S16, Int::U16, Int::S32, Int::U32, Int::S64, Int::U64])
}

fn types() -> impl Strategy<Value = Ty> {
    let leaf = prop_oneof![
        Just(Ty::Bool),
        ints().prop_map(Ty::Int),
        Just(Ty::F32),
        Just(Ty::F64),
        Just(Ty::Char),
        Just(Ty::String),
        names(5).prop_map(Ty::Enum),
        names(40).prop_map(Ty::Flags),
        Just(Ty::List(Box::new(Ty::Int(Int::U8)))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        let key = prop_oneof![Just(Ty::String), Just(Ty::Char), Just(Ty::Bool), ints().prop_map(Ty::Int)];
        prop_oneof![
            boxed().prop_map(Ty::List),
            (boxed(), 1..4_u32).prop_map(|(item, len)| Ty::FixedList(item, len)),
            (key.prop_map(Box::new), boxed()).prop_map(|(key, value)| Ty::Map(key, value)),
            (names(4), vec(inner.clone(), 4)).prop_map(|(names, types)| {
                Ty::Record(names.into_iter().zip(types).map(|(name, ty)| Field { name, ty }).collect())
            }),
            vec(inner.clone(), 1..4).prop_map(Ty::Tuple),
            (names(4), vec(proptest::option::of(inner.clone()), 4))
                .prop_map(|(names, types)| Ty::Variant(names.into_iter().zip(types).collect())),
            boxed().prop_map(Ty::Option),
            boxed().prop_map(|inner| Ty::Option(Box::new(Ty::Option(inner)))),
            (proptest::option::of(boxed()), proptest::option::of(boxed())).prop_map(|(ok, err)| Ty::Result(ok, err)),
        ]
    })
}

fn values(ty: &Ty) -> BoxedStrategy<Val> {
    match ty.clone() {
        Ty::Bool => any::<bool>().prop_map(Val::Bool).boxed(),
        Ty::Int(Int::S8) => any::<i8>().prop_map(Val::S8).boxed(),
        Ty::Int(Int::U8) => any::<u8>().prop_map(Val::U8).boxed(),
        Ty::Int(Int::S16) => any::<i16>().prop_map(Val::S16).boxed(),
        Ty::Int(Int::U16) => any::<u16>().prop_map(Val::U16).boxed(),
        Ty::Int(Int::S32) => any::<i32>().prop_map(Val::S32).boxed(),
        Ty::Int(Int::U32) => any::<u32>().prop_map(Val::U32).boxed(),
        Ty::Int(Int::S64) => {
            prop_oneof![any::<i64>(), select(vec![i64::MIN, i64::MAX, 1 << 53, -(1 << 53) - 1])].prop_map(Val::S64).boxed()
        }
        Ty::Int(Int::U64) => prop_oneof![any::<u64>(), select(vec![u64::MAX, 1 << 53, (1 << 53) + 1])].prop_map(Val::U64).boxed(),
        Ty::F32 => {
            use proptest::num::f32::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
            (POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO).prop_map(Val::Float32).boxed()
        }
        Ty::F64 => {
            use proptest::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
            (POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO).prop_map(Val::Float64).boxed()
        }
        Ty::Char => any::<char>().prop_map(Val::Char).boxed(),
        Ty::String => any::<String>().prop_map(Val::String).boxed(),
        Ty::List(item) => vec(values(&item), 0..5).prop_map(Val::List).boxed(),
        Ty::FixedList(item, len) => {
            vec(values(&item), usize::try_from(len).expect("small")).prop_map(Val::FixedLengthList).boxed()
        }
        Ty::Map(key, value) => {
            let keys = hash_set(values(&key).prop_map(|key| from_key(&key)), 0..4);
            (keys, vec(values(&value), 4), Just(*key))
                .prop_map(|(keys, values, key)| {
                    let keys =
                        keys.into_iter().map(|text| to_val(&key, &serde_json::from_str(&text).expect("JSON")).expect("a key"));
                    Val::Map(keys.zip(values).collect())
                })
                .boxed()
        }
        Ty::Record(fields) => {
            let values: Vec<_> = fields.iter().map(|field| values(&field.ty)).collect();
            values
                .prop_map(move |values| Val::Record(fields.iter().map(|field| field.name.to_string()).zip(values).collect()))
                .boxed()
        }
        Ty::Tuple(types) => types.iter().map(values).collect::<Vec<_>>().prop_map(Val::Tuple).boxed(),
        Ty::Variant(cases) => select(cases)
            .prop_flat_map(|(name, ty)| optional(ty.as_ref()).prop_map(move |value| Val::Variant(name.to_string(), value)))
            .boxed(),
        Ty::Enum(names) => select(names).prop_map(|name| Val::Enum(name.to_string())).boxed(),
        Ty::Option(inner) => proptest::option::of(values(&inner)).prop_map(|value| Val::Option(value.map(Box::new))).boxed(),
        Ty::Result(ok, err) => prop_oneof![
            optional(ok.as_deref()).prop_map(|v| Val::Result(Ok(v))),
            optional(err.as_deref()).prop_map(|v| Val::Result(Err(v)))
        ]
        .boxed(),
        Ty::Flags(names) => {
            let all = names.len();
            subsequence(names, 0..=all).prop_map(|names| Val::Flags(names.iter().map(ToString::to_string).collect())).boxed()
        }
    }
}

fn optional(ty: Option<&Ty>) -> BoxedStrategy<Option<Box<Val>>> {
    match ty {
        Some(ty) => values(ty).prop_map(|value| Some(Box::new(value))).boxed(),
        None => Just(None).boxed(),
    }
}

fn from_key(key: &Val) -> String {
    match key {
        Val::Bool(value) => value.to_string(),
        Val::Char(value) => json!(value).to_string(),
        Val::String(value) => json!(value).to_string(),
        Val::S8(value) => value.to_string(),
        Val::U8(value) => value.to_string(),
        Val::S16(value) => value.to_string(),
        Val::U16(value) => value.to_string(),
        Val::S32(value) => value.to_string(),
        Val::U32(value) => value.to_string(),
        Val::S64(value) => value.to_string(),
        Val::U64(value) => value.to_string(),
        other => panic!("{other:?} is no key"),
    }
}

fn typed_values() -> impl Strategy<Value = (Ty, Val)> {
    types().prop_flat_map(|ty| values(&ty).prop_map(move |val| (ty.clone(), val)))
}

/// Any JSON, often with words that mean something here.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-300..300_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(vec![json!(1.5), json!(5.0), json!(1e19), json!(u64::MAX), json!(3.5e38), json!(-0.0)]),
        select(vec!["", "12", "-12", "007", "QQ==", "QQ", "18446744073709551616", "天", "🦀", "a"]).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let key = select(vec!["tag", "val", "some", "ok", "err", "a", "b"]).prop_map(str::to_owned);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key, inner), 0..3).prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Puts `replacement` somewhere into `value`.
fn replace(value: &mut Value, replacement: &Value, at: &[Index]) {
    let [index, rest @ ..] = at else {
        *value = replacement.clone();
        return;
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            let chosen = index.index(items.len());
            replace(&mut items[chosen], replacement, rest);
        }
        Value::Object(object) if !object.is_empty() => {
            let key = object.keys().nth(index.index(object.len())).expect("in range").clone();
            replace(&mut object[&key], replacement, rest);
        }
        other => *other = replacement.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn json_to_value_to_json_is_the_identity((ty, val) in typed_values()) {
        let json = from_val(&ty, val.clone()).expect("finite");
        let text = json.to_string();
        let read: Value = serde_json::from_str(&text).expect("JSON");
        prop_assert_eq!(&read, &json);
        let back = to_val(&ty, &read).map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
        prop_assert_eq!(&back, &val);
        prop_assert_eq!(from_val(&ty, back).expect("finite"), json.clone());

        let validator = jsonschema::validator_for(&schema(&ty)).expect("a schema");
        prop_assert!(validator.is_valid(&json), "{} is not {}", json, schema(&ty));
        let root = result(&ty);
        prop_assert_eq!(&root["type"], "object");
    }

    #[test]
    fn the_schema_says_what_is_accepted(
        (ty, val) in typed_values(), other in any_json(), at in vec(any::<Index>(), 0..4)
    ) {
        let validator = jsonschema::validator_for(&schema(&ty)).expect("a schema");
        let mut changed = from_val(&ty, val).expect("finite");
        replace(&mut changed, &other, &at);
        for value in [other, changed] {
            match (to_val(&ty, &value), validator.is_valid(&value)) {
                (Ok(_), valid) => prop_assert!(valid, "{} is accepted, and not {}", value, schema(&ty)),
                // What a schema cannot say: that text is base64, that digits are in range, that a double stands for one integer.
                (Err(error), true) => {
                    let excused = ["base64", "is not between", "is not exact", "comes twice"];
                    let excused = excused.iter().any(|excuse| error.message.contains(excuse));
                    prop_assert!(excused, "{}: {} is {}", error, value, schema(&ty));
                }
                (Err(_), false) => {}
            }
        }
    }
}
