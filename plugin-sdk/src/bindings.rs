//! What wit-bindgen makes of `wit/`.

// The WIT files are outside this package, as they belong to host and SDK alike. To publish the package, put a copy (or a symbolic
// link, which `cargo package` follows) at `plugin-sdk/wit` and change the path.
wit_bindgen::generate!({
    path: "../wit",
    world: "plugin",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "export_plugin",
    default_bindings_module: "honeycomb_sdk::__private::bindings",
});
