use proptest::prelude::*;
use serde_json::json;

use super::*;

fn tool(name: &str, schema: &str) -> RawTool {
    RawTool { name: name.to_owned(), description: "d".to_owned(), input_schema: schema.to_owned(), ..RawTool::default() }
}

fn check_one(schema: &str) -> Result<PluginTool, MetadataError> {
    check_tools(vec![tool("t", schema)], &LoadLimits::default()).map(|mut tools| tools.remove(0))
}

/// Definitions `0` to `n`, each of which names the next one eight times.
fn tower(n: usize) -> String {
    let mut definitions = serde_json::Map::new();
    for i in 0..n {
        let next = json!({"$ref": format!("#/$defs/{}", i + 1)});
        definitions.insert(i.to_string(), json!({"allOf": vec![next; 8]}));
    }
    definitions.insert(n.to_string(), json!({}));
    json!({"$defs": definitions, "properties": {"a": {"$ref": "#/$defs/0"}}}).to_string()
}

#[test]
fn names_the_tool_that_is_wrong() {
    for (tools, expected) in [
        (vec![], "load.invalid the plugin lists no tools"),
        (vec![tool("a", "{}"); 257], "load.limit the plugin lists 257 tools, more than the 256 allowed"),
        (vec![tool("a", "{}"), tool("a", "{}")], "load.invalid two tools are named `a`"),
        (vec![tool("", "{}")], "load.invalid tool 0 is named ``"),
        (vec![tool("ok", "{}"), tool("../x", "{}")], "load.invalid tool 1 is named `../x`"),
        (vec![tool("bidi\u{202e}", "{}")], "load.invalid tool 0 is named `bidi`"),
        (vec![tool("аpi", "{}")], "load.invalid tool 0 is named `аpi`"),
        (vec![tool(&"a".repeat(65), "{}")], "load.invalid tool 0 is named `aaa"),
        (vec![tool("a b", "{}")], "load.invalid tool 0 is named `a b`"),
    ] {
        let error = check_tools(tools, &LoadLimits::default()).expect_err(expected);
        assert!(format!("{} {error}", error.code()).starts_with(expected), "{error}");
    }
    let longest = "a-Z_0".repeat(12) + "abcd";
    assert_eq!(check_tools(vec![tool(&longest, "{}")], &LoadLimits::default()).expect("good").len(), 1);
}

#[test]
fn refuses_schemas_that_are_not_closed_or_cost_too_much() {
    let deep = format!("{}{}", r#"{"properties":{"a":"#.repeat(60), "{}".to_owned() + &"}}".repeat(60));
    let long = format!(r#"{{"description":"{}"}}"#, "x".repeat(70_000));
    for (schema, expected) in [
        ("", "load.invalid tool `t`: the input schema is not valid JSON"),
        ("true", "load.invalid tool `t`: the input schema is a boolean, not an object"),
        ("[]", "load.invalid tool `t`: the input schema is an array, not an object"),
        (r#"{"type":"string"}"#, "load.invalid tool `t`: the input schema has the type \"string\", not `object`"),
        (r#"{"type":["object","null"]}"#, "load.invalid tool `t`: the input schema has the type"),
        (r#"{"properties":[]}"#, "load.invalid tool `t`: the input schema has `properties` that are an array"),
        (
            r#"{"properties":{},"properties":{}}"#,
            "load.invalid tool `t`: the input schema is not valid JSON: key `properties` appears twice",
        ),
        (r#"{"properties":{"a":{"type":"strung"}}}"#, "load.invalid tool `t`: the input schema is not valid"),
        (r#"{"properties":{"a":{"pattern":"("}}}"#, "load.invalid tool `t`: the input schema is not valid"),
        (r#"{"properties":{"a":{"pattern":"(a{500}){500}"}}}"#, "load.invalid tool `t`: the input schema is not valid"),
        (r#"{"properties":{"a":{"pattern":"(a)\\1"}}}"#, "load.invalid tool `t`: the input schema is not valid"),
        (
            r#"{"$ref":"https://example.com/s.json"}"#,
            "load.invalid tool `t`: the input schema refers to `https://example.com/s.json`",
        ),
        (r#"{"items":{"$ref":"file:///etc/passwd"}}"#, "load.invalid tool `t`: the input schema refers to `file:///etc/passwd`"),
        (
            r##"{"properties":{"a":{"$ref":"#/$defs/none"}}}"##,
            "load.invalid tool `t`: the input schema refers to `#/$defs/none`, which is not",
        ),
        (r##"{"properties":{"a":{"$ref":"#"}}}"##, "load.invalid tool `t`: the input schema refers to itself through `#`"),
        (
            r##"{"$defs":{"n":{"properties":{"c":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"}"##,
            "load.invalid tool `t`: the input schema refers to",
        ),
        (r##"{"properties":{"a":{"$dynamicRef":"#x"}}}"##, "load.invalid tool `t`: the input schema uses `$dynamicRef`"),
        (r#"{"properties":{"a":{"$id":"http://x/"}}}"#, "load.invalid tool `t`: the input schema has an `$id` below its root"),
        (r#"{"$schema":"https://example.com/meta"}"#, "load.invalid tool `t`: the input schema is not valid"),
        (r#"{"properties":{"a\u200b":{}}}"#, "load.invalid tool `t`: the input schema has a key with invisible characters, `a`"),
        (
            r#"{"properties":{"a":{"enum":["x\u202e"]}}}"#,
            "load.invalid tool `t`: the input schema has a value with invisible characters",
        ),
        (&tower(6), "load.limit tool `t`: the input schema has more than 20000 parts"),
        (&deep, "load.limit tool `t`: the input schema has more than 48 levels"),
        (&"[".repeat(50_000), "load.invalid tool `t`: the input schema is not valid JSON: recursion limit"),
        (&long, "load.limit tool `t`: the input schema has 70018 bytes, more than the 65536 allowed"),
    ] {
        let error = check_one(schema).expect_err(expected);
        assert!(format!("{} {error}", error.code()).starts_with(expected), "{error}");
        assert!(Failure::from(error).hint.is_some());
    }
}

#[test]
fn accepts_what_toolchains_write_and_completes_the_root() {
    let schemars = r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"Args","type":"object","required":["to"],
        "properties":{"to":{"$ref":"#/$defs/City"},"also":{"anyOf":[{"$ref":"#/$defs/City"},{"type":"null"}]},
        "default":{"type":"string","default":"x"}},"$defs":{"City":{"type":"string","enum":["北京","Zürich"]}}}"##;
    let checked = check_one(schemars).expect("valid");
    assert!(checked.validator.is_valid(&json!({"to": "北京", "also": null})));
    assert!(!checked.validator.is_valid(&json!({"to": "Paris"})));
    assert!(check_one(&tower(3)).is_ok());

    let empty = check_one("{}").expect("valid");
    assert_eq!(empty.input_schema, json!({"type": "object", "properties": {}}));
    assert!(!empty.validator.is_valid(&json!([])));
}

#[test]
fn cleans_what_the_model_reads() {
    let raw = RawTool {
        title: Some("Ti\ntle\u{200b}".to_owned()),
        description: format!("a\u{1b}[2J\u{e0041}b{}", "x".repeat(9_000)),
        input_schema: r#"{"description":"do\u200b\u001b it","properties":{"description":{"type":"string","title":"\u202ex"}}}"#
            .to_owned(),
        output_schema: Some(r#"{"properties":{"n":{"type":"integer"}}}"#.to_owned()),
        ..tool("t", "")
    };
    let checked = check_tools(vec![raw], &LoadLimits::default()).expect("valid").remove(0);
    assert_eq!(checked.title.as_deref(), Some("Ti tle"));
    assert!(checked.description.starts_with("a[2Jbxxx") && checked.description.contains("… [cut: "));
    assert_eq!(checked.input_schema["description"], "do it");
    assert_eq!(checked.input_schema["properties"]["description"]["title"], "x");
    assert!(!checked.output_validator.expect("a validator").is_valid(&json!({"n": "one"})));
}

#[test]
fn any_text_is_a_tool_or_an_error() {
    for seed in ["{}", r##"{"$ref":"#"}"##, r#"{"type":"object"}"#, "北京", "\u{202e}", &tower(12), r#"{"if":{"$ref":"x"}}"#] {
        fuzz_tool_metadata(seed.as_bytes());
    }
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>) {
        fuzz_tool_metadata(&bytes);
    }

    #[test]
    fn never_panics_on_near_schemas(key in r#"[$a-zA-Z]{1,8}|\$ref|properties|items|allOf"#, value in r##"\{\}|\[\{\}\]|"#(/properties)?"|1|true"##) {
        fuzz_tool_metadata(format!(r#"{{"properties":{{"a":{{"{key}":{value}}}}}}}"#).as_bytes());
    }
}
