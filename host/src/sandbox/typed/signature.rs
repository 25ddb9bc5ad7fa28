//! Functions in WIT syntax: the description of a tool whose author wrote none.

use super::ty::{Field, Ty};

/// `name: func(a: u32) -> string`, cut where it gets long.
pub(super) fn signature(name: &str, parameters: &[Field], result: Option<&Ty>) -> String {
    let mut text = format!("{name}: func(");
    fields(&mut text, parameters);
    text.push(')');
    if let Some(result) = result {
        text.push_str(" -> ");
        ty(&mut text, result);
    }
    text
}

fn fields(text: &mut String, fields: &[Field]) {
    separated(text, fields, |text, field| {
        text.push_str(&field.name);
        text.push_str(": ");
        ty(text, &field.ty);
    });
}

fn ty(text: &mut String, of: &Ty) {
    match of {
        Ty::Bool => text.push_str("bool"),
        Ty::Int(int) => text.push_str(int.name()),
        Ty::F32 => text.push_str("f32"),
        Ty::F64 => text.push_str("f64"),
        Ty::Char => text.push_str("char"),
        Ty::String => text.push_str("string"),
        Ty::List(item) => generic(text, "list", &[item]),
        Ty::FixedList(item, len) => {
            text.push_str("list<");
            ty(text, item);
            text.push_str(&format!(", {len}>"));
        }
        Ty::Map(key, value) => generic(text, "map", &[key, value]),
        Ty::Record(record) => {
            text.push_str("record { ");
            fields(text, record);
            text.push_str(" }");
        }
        Ty::Tuple(types) => generic(text, "tuple", &types.iter().collect::<Vec<_>>()),
        Ty::Variant(cases) => {
            text.push_str("variant { ");
            separated(text, cases, |text, (name, inner)| {
                text.push_str(name);
                if let Some(inner) = inner {
                    text.push('(');
                    ty(text, inner);
                    text.push(')');
                }
            });
            text.push_str(" }");
        }
        Ty::Enum(names) => names_of(text, "enum", names),
        Ty::Flags(names) => names_of(text, "flags", names),
        Ty::Option(inner) => generic(text, "option", &[inner]),
        Ty::Result(None, None) => text.push_str("result"),
        Ty::Result(ok, err) => {
            text.push_str("result<");
            match ok {
                Some(ok) => ty(text, ok),
                None => text.push('_'),
            }
            if let Some(err) = err {
                text.push_str(", ");
                ty(text, err);
            }
            text.push('>');
        }
    }
}

fn generic(text: &mut String, name: &str, types: &[&Ty]) {
    text.push_str(name);
    text.push('<');
    separated(text, types, |text, inner| ty(text, inner));
    text.push('>');
}

fn names_of(text: &mut String, keyword: &str, names: &[Box<str>]) {
    text.push_str(keyword);
    text.push_str(" { ");
    separated(text, names, |text, name| text.push_str(name));
    text.push_str(" }");
}

fn separated<T>(text: &mut String, items: &[T], each: impl Fn(&mut String, &T)) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        each(text, item);
    }
}
