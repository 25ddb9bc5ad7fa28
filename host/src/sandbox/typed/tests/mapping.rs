//! The mapping's edges, one by one.

use serde_json::{Value, json};
use wasmtime::component::Val;

use crate::sandbox::typed::from_val::from_val;
use crate::sandbox::typed::schema;
use crate::sandbox::typed::to_val::{fields, to_val};
use crate::sandbox::typed::ty::{Field, Int, Ty};

fn int(int: Int) -> Ty {
    Ty::Int(int)
}

fn list(item: Ty) -> Ty {
    Ty::List(Box::new(item))
}

fn option(inner: Ty) -> Ty {
    Ty::Option(Box::new(inner))
}

fn record(fields: &[(&str, Ty)]) -> Ty {
    Ty::Record(fields.iter().map(|(name, ty)| Field { name: (*name).into(), ty: ty.clone() }).collect())
}

fn names(names: &[&str]) -> Vec<Box<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

fn shape() -> Ty {
    Ty::Variant(vec![("circle".into(), Some(Ty::F64)), ("none".into(), None)])
}

#[test]
fn takes_what_the_type_holds() {
    let point = record(&[("x", int(Int::S32)), ("note", option(Ty::String))]);
    for (ty, text, expected) in [
        (int(Int::U64), "18446744073709551615", Val::U64(u64::MAX)),
        (int(Int::U64), r#""18446744073709551615""#, Val::U64(u64::MAX)),
        (int(Int::S64), r#""-9223372036854775808""#, Val::S64(i64::MIN)),
        (int(Int::S64), "-9223372036854775808", Val::S64(i64::MIN)),
        (int(Int::U8), "5.0", Val::U8(5)),
        (int(Int::U8), "1e2", Val::U8(100)),
        (Ty::F32, "0.1", Val::Float32(0.1)),
        (Ty::F64, "1", Val::Float64(1.0)),
        (Ty::Char, r#""🦀""#, Val::Char('🦀')),
        (Ty::String, r#""北京 🦀\u0000""#, Val::String("北京 🦀\0".to_owned())),
        (list(Ty::String), "[]", Val::List(vec![])),
        (list(int(Int::U8)), r#""""#, Val::List(vec![])),
        (list(int(Int::U8)), r#""AP8=""#, Val::List(vec![Val::U8(0), Val::U8(255)])),
        (list(int(Int::U8)), "[0,255]", Val::List(vec![Val::U8(0), Val::U8(255)])),
        (option(Ty::Bool), "null", Val::Option(None)),
        (option(option(Ty::Bool)), "null", Val::Option(None)),
        (option(option(Ty::Bool)), r#"{"some":null}"#, Val::Option(Some(Box::new(Val::Option(None))))),
        (Ty::Flags(names(&["r", "w"])), r#"["w","r"]"#, Val::Flags(vec!["r".to_owned(), "w".to_owned()])),
        (shape(), r#"{"tag":"none"}"#, Val::Variant("none".to_owned(), None)),
        (point.clone(), r#"{"x":-1}"#, Val::Record(vec![("x".to_owned(), Val::S32(-1)), ("note".to_owned(), Val::Option(None))])),
        (Ty::Result(None, Some(Box::new(Ty::Bool))), r#"{"ok":null}"#, Val::Result(Ok(None))),
    ] {
        let value: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(to_val(&ty, &value).as_ref(), Ok(&expected), "{text}");
        assert!(jsonschema::is_valid(&schema::schema(&ty), &value), "{text}");
    }
}

#[test]
fn refuses_the_rest_with_its_place() {
    let point = record(&[("x", int(Int::S32)), ("at/most", option(int(Int::U8)))]);
    for (ty, value, pointer, message) in [
        (int(Int::U32), json!("123"), "", "expected an integer, not a string"),
        (int(Int::U8), json!(300), "", "300 is not between 0 and 255, the range of u8"),
        (int(Int::U8), json!(-1), "", "-1 is not between 0 and 255"),
        (int(Int::S32), json!(1.5), "", "1.5 is not an integer"),
        (int(Int::S32), json!(null), "", "expected an integer, not null"),
        (int(Int::U64), json!(1e19), "", "write large integers in digits, as a string"),
        (int(Int::U64), json!("18446744073709551616"), "", "is not between"),
        (int(Int::U64), json!("-1"), "", "is not between"),
        (int(Int::U64), json!("007"), "", "`007` is not a decimal integer"),
        (int(Int::S64), json!("1 "), "", "is not a decimal integer"),
        (Ty::F32, json!(1e39), "", "beyond what an f32 holds"),
        (Ty::F64, json!("NaN"), "", "expected a number, not a string"),
        (Ty::Char, json!(""), "", "expected one character, not 0"),
        (Ty::Char, json!("e\u{301}"), "", "expected one character, not 2"),
        (Ty::Bool, json!(0), "", "expected a boolean, not a number"),
        (Ty::String, json!(713), "", "expected a string, not a number"),
        (list(int(Int::U8)), json!("QQ"), "", "not base64"),
        (list(int(Int::U8)), json!([1, 256]), "/1", "256 is not between 0 and 255"),
        (point.clone(), json!({}), "", "the field `x` is missing"),
        (point.clone(), json!({"x": 1, "y~": 2}), "/y~0", "there is no such field; there are `x`, `at/most`"),
        (point.clone(), json!({"x": 1, "at/most": 256}), "/at~1most", "256 is not between"),
        (list(point), json!([{"x": 1}, {"x": null}]), "/1/x", "expected an integer, not null"),
        (Ty::Enum(names(&["on", "off"])), json!("On"), "", "`On` is not one of them; there are `on`, `off`"),
        (shape(), json!({"tag": "square"}), "/tag", "`square` is no case; there are `circle`, `none`"),
        (shape(), json!({"tag": "circle"}), "", "the field `val` of case `circle` is missing"),
        (shape(), json!({"tag": "none", "val": null}), "/val", "the case `none` has no such field"),
        (shape(), json!("none"), "", "expected an object with `tag`, not a string"),
        (Ty::Flags(names(&["r"])), json!(["r", "r"]), "/1", "comes twice"),
        (Ty::Flags(names(&["r"])), json!(["x"]), "/0", "`x` is not one of them"),
        (Ty::Tuple(vec![Ty::Bool]), json!([true, true]), "", "expected 1 items, not 2"),
        (Ty::FixedList(Box::new(Ty::Bool), 2), json!([true]), "", "expected 2 items, not 1"),
        (option(option(Ty::Bool)), json!(true), "", "expected null, or an object with `some`, not a boolean"),
        (Ty::Map(Box::new(Ty::Bool), Box::new(Ty::Bool)), json!([[true, true], [true, false]]), "/1/0", "comes twice"),
    ] {
        let error = to_val(&ty, &value).expect_err(&value.to_string());
        assert_eq!(error.pointer, pointer, "{value}: {error}");
        assert!(error.message.contains(message), "{value}: {error}");
    }
}

#[test]
fn an_option_may_be_left_out_of_the_arguments() {
    let parameters = [Field { name: "a".into(), ty: Ty::Bool }, Field { name: "b".into(), ty: option(Ty::Bool) }];
    let arguments = |value: Value| fields(&parameters, value.as_object().expect("an object"));
    let none = Ok(vec![Val::Bool(true), Val::Option(None)]);
    assert_eq!(arguments(json!({"a": true})), none);
    assert_eq!(arguments(json!({"a": true, "b": null})), none);
    assert_eq!(arguments(json!({"b": true})).expect_err("a is missing").message, "the field `a` is missing");
    assert_eq!(arguments(json!({"a": true, "c": 1})).expect_err("c is unknown").pointer, "/c");
    assert_eq!(schema::arguments(&parameters)["required"], json!(["a"]));
}

#[test]
fn prints_what_readers_keep() {
    for (ty, val, expected) in [
        (int(Int::U64), Val::U64(u64::MAX), json!("18446744073709551615")),
        (int(Int::U64), Val::U64(1 << 53), json!(9_007_199_254_740_992_u64)),
        (int(Int::U64), Val::U64((1 << 53) + 1), json!("9007199254740993")),
        (int(Int::S64), Val::S64(i64::MIN), json!("-9223372036854775808")),
        (Ty::F32, Val::Float32(0.1), json!(0.1)),
        (Ty::F32, Val::Float32(f32::MAX), json!(3.402_823_5e38)),
        (list(int(Int::U8)), Val::List(vec![Val::U8(0), Val::U8(255)]), json!("AP8=")),
        (Ty::Flags(names(&["r", "w"])), Val::Flags(vec!["w".to_owned()]), json!(["w"])),
        (
            Ty::Map(Box::new(Ty::String), Box::new(Ty::Bool)),
            Val::Map(vec![(Val::String("a".into()), Val::Bool(true)), (Val::String("a".into()), Val::Bool(false))]),
            json!({"a": false}),
        ),
    ] {
        assert_eq!(from_val(&ty, val).as_ref(), Ok(&expected), "{expected}");
    }
}

#[test]
fn refuses_numbers_that_json_does_not_have() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = from_val(&list(Ty::F64), Val::List(vec![Val::Float64(1.0), Val::Float64(bad)])).expect_err("no number");
        assert_eq!(error.pointer, "/1");
        assert!(error.to_string().contains("is no JSON number"), "{error}");
    }
    assert!(from_val(&Ty::F32, Val::Float32(f32::NAN)).is_err());
}

#[test]
fn every_root_is_an_object() {
    for (ty, wrapped) in [
        (record(&[("x", Ty::Bool)]), false),
        (Ty::Map(Box::new(Ty::String), Box::new(Ty::Bool)), false),
        (Ty::Map(Box::new(Ty::Bool), Box::new(Ty::Bool)), true),
        (list(Ty::Bool), true),
        (Ty::String, true),
        (shape(), true),
        (option(record(&[])), true),
    ] {
        let root = schema::result(&ty);
        assert_eq!(root["type"], "object", "{root}");
        assert_eq!(root["properties"].get("result").is_some(), wrapped, "{root}");
    }
}
