//! The generated types of `honeycomb:plugin/tools`: what a plugin exports.

#![allow(missing_docs, reason = "generated from WIT, where each item is documented")]

wasmtime::component::bindgen!({
    inline: "
        package honeycomb:host;
        world guest {
            export honeycomb:plugin/tools@0.1.0;
        }
    ",
    path: "../wit",
    world: "honeycomb:host/guest",
    exports: { default: async },
});

pub(crate) use honeycomb::plugin::types::{CallContext, Content, Tool, ToolError};

/// The interface that a plugin exports.
pub(super) const TOOLS: &str = "honeycomb:plugin/tools@0.1.0";
