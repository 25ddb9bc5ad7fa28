//! The engine's configuration: one place that sets every proposal and every knob, for the compiler and for the server alike.
//!
//! Both must agree, or an artifact is refused when it is loaded: wasmtime writes these settings into it and compares them.

use std::num::NonZeroUsize;

use wasmparser::WasmFeatures;
use wasmtime::{Config, Engine, OperatorCost, OptLevel, Strategy, VariableOperatorCost, WasmBacktraceDetails};

/// The proposals that `rustc`, `clang`, Go, `componentize-js` and `componentize-py` need: what the specification calls 2.0, extended
/// constant expressions (position-independent code), and components.
pub(crate) const ENABLED: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::FLOATS)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::CALL_INDIRECT_OVERLONG)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::BULK_MEMORY_OPT)
    .union(WasmFeatures::SIMD)
    .union(WasmFeatures::EXTENDED_CONST)
    // For the adapters that wasmtime itself writes between two components; 48.0.8 panics without. The outline's reader holds a
    // plugin's own modules to one memory.
    .union(WasmFeatures::MULTI_MEMORY)
    .union(WasmFeatures::COMPONENT_MODEL);

/// Everything else, by name. Most of wasmtime's advisories of 2026 lie in these, and many are on by default.
const DISABLED: &[WasmFeatures] = &[
    // GHSA-rc4p-x33f-vpr2, GHSA-43j2, GHSA-wvgq, GHSA-cfhf, GHSA-hw8m: garbage collection and what belongs to it.
    WasmFeatures::GC,
    WasmFeatures::GC_TYPES,
    WasmFeatures::FUNCTION_REFERENCES,
    WasmFeatures::CUSTOM_DESCRIPTORS,
    WasmFeatures::EXCEPTIONS,
    WasmFeatures::LEGACY_EXCEPTIONS,
    // GHSA-2674-w29h-wqvj; shared memory also escapes the memory limit, because no limiter is asked.
    WasmFeatures::THREADS,
    WasmFeatures::SHARED_EVERYTHING_THREADS,
    // RUSTSEC-2024-0440, and a loop without a call for the fuel check to sit in.
    WasmFeatures::TAIL_CALL,
    WasmFeatures::STACK_SWITCHING,
    WasmFeatures::MEMORY64,
    WasmFeatures::MEMORY_CONTROL,
    WasmFeatures::CUSTOM_PAGE_SIZES,
    // Results that differ between processors.
    WasmFeatures::RELAXED_SIMD,
    WasmFeatures::WIDE_ARITHMETIC,
    WasmFeatures::COMPACT_IMPORTS,
    // GHSA-32h6-97mm-8q3c (critical), GHSA-xrvr: async components. The cargo feature is not compiled in either.
    WasmFeatures::CM_ASYNC,
    WasmFeatures::CM_ASYNC_STACKFUL,
    WasmFeatures::CM_MORE_ASYNC_BUILTINS,
    WasmFeatures::CM_THREADING,
    WasmFeatures::CM_ERROR_CONTEXT,
    WasmFeatures::CM_VALUES,
    WasmFeatures::CM_NESTED_NAMES,
    WasmFeatures::CM_FIXED_LENGTH_LISTS,
    WasmFeatures::CM_GC,
    WasmFeatures::CM_MAP,
    WasmFeatures::CM64,
    WasmFeatures::CM_IMPLEMENTS,
    WasmFeatures::CM_CANON_NAMES,
];

/// Stack of the guest's own frames, in bytes. It counts against [`ASYNC_STACK`].
const WASM_STACK: usize = 512 * 1024;

/// Stack of one call, host functions included, in bytes. Only what is touched becomes memory.
const ASYNC_STACK: usize = 2 * 1024 * 1024;

/// Fuel for one page (64 KiB) of `memory.grow`, the most that fits. wasmtime's default is nothing, although the kernel zeroes the page.
const FUEL_PER_PAGE: u8 = u8::MAX;

/// What an engine is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EngineRole {
    /// Compiles, in a child process, and runs nothing.
    Compile,
    /// Runs what was compiled, and cannot compile.
    Serve,
}

/// How much address space a linear memory reserves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AddressSpace {
    /// 4 GiB and a guard each: no bounds check in the guest's code.
    #[default]
    Large,
    /// Nothing beyond what is used, for a host under `ulimit -v`: every access is checked.
    Small,
}

impl AddressSpace {
    /// The word that stands for it in the compile child's arguments.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Small => "small",
        }
    }
}

/// The configuration of an engine. The allocation strategy is the caller's: it is no part of an artifact.
pub(crate) fn engine_config(role: EngineRole, space: AddressSpace) -> Config {
    let mut config = Config::new();
    for &feature in DISABLED {
        config.wasm_features(feature, false);
    }
    config.wasm_features(ENABLED, true);
    config.gc_support(false).shared_memory(false).concurrency_support(false);

    // Fuel bounds work and, by its yields, lets a deadline fire; epochs would be paid for twice.
    config.consume_fuel(true).epoch_interruption(false);
    config.operator_cost(OperatorCost {
        variable: VariableOperatorCost { memory_grow_per_page: FUEL_PER_PAGE, ..VariableOperatorCost::new() },
        ..OperatorCost::new()
    });

    config.max_wasm_stack(WASM_STACK).async_stack_size(ASYNC_STACK);
    config.signals_based_traps(true).table_lazy_init(true).memory_init_cow(true).guard_before_linear_memory(true);
    match space {
        AddressSpace::Large => config.memory_reservation(4 << 30).memory_guard_size(32 << 20).memory_may_move(true),
        AddressSpace::Small => {
            config.memory_reservation(0).memory_reservation_for_growth(1 << 20).memory_guard_size(64 << 10).memory_may_move(true)
        }
    };

    // A backtrace names functions. It reads no DWARF: that is the guest's, and a parser of hostile input.
    config.wasm_backtrace_max_frames(NonZeroUsize::new(20)).wasm_backtrace_details(WasmBacktraceDetails::Disable);
    config.generate_address_map(false).debug_info(false).debug_symbols(false);

    match role {
        EngineRole::Compile => {
            config.strategy(Strategy::Cranelift).cranelift_opt_level(OptLevel::Speed).cranelift_debug_verifier(false);
            // Registering unwind tables with the system took a minute for many modules (wasmtime issue 10084); nothing here reads them.
            config.native_unwind_info(false);
            // One core for one component: the CPU limit then means what it says.
            config.parallel_compilation(false);
        }
        EngineRole::Serve => {
            config.enable_compiler(false);
        }
    }
    config
}

/// The layout that an engine was made with. The compile child must use the same.
pub(crate) fn address_space(engine: &Engine) -> AddressSpace {
    if engine.get_memory_reservation() == 0 { AddressSpace::Small } else { AddressSpace::Large }
}

/// Names proposals for people, such as `memory64`.
pub(crate) fn feature_names(features: WasmFeatures) -> String {
    let names: Vec<String> = features
        .iter_names()
        .map(|(name, _)| name.to_ascii_lowercase().replace("cm_", "component-model ").replace('_', "-"))
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash, Hasher};

    use wasmtime::{InstanceAllocationStrategy, PoolingAllocationConfig};

    use super::*;

    fn hash(engine: &Engine) -> u64 {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn decides_about_every_proposal_that_wasmtime_knows() {
        let disabled = DISABLED.iter().copied().collect::<WasmFeatures>();
        assert_eq!(ENABLED & disabled, WasmFeatures::empty());
        let undecided = WasmFeatures::all() - ENABLED - disabled;
        assert!(undecided.is_empty(), "neither enabled nor disabled: {}", feature_names(undecided));
    }

    #[test]
    fn leaves_on_only_what_is_listed() {
        for role in [EngineRole::Compile, EngineRole::Serve] {
            let engine = Engine::new(&engine_config(role, AddressSpace::Large)).expect("an engine");
            assert_eq!(feature_names(engine.get_wasm_features()), feature_names(ENABLED), "{role:?}");
            assert!(!engine.get_shared_memory() && !engine.get_concurrency_support());
            assert!(engine.get_consume_fuel());
        }
    }

    #[test]
    fn pooling_does_not_change_what_an_artifact_must_match() {
        let on_demand = Engine::new(&engine_config(EngineRole::Serve, AddressSpace::Large)).expect("an engine");
        let mut config = engine_config(EngineRole::Serve, AddressSpace::Large);
        let mut pool = PoolingAllocationConfig::new();
        pool.total_memories(2).total_core_instances(2).total_component_instances(2).total_stacks(2).total_tables(2);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let pooling = Engine::new(&config).expect("an engine");
        assert_eq!(hash(&on_demand), hash(&pooling));
        let small = Engine::new(&engine_config(EngineRole::Serve, AddressSpace::Small)).expect("an engine");
        assert_ne!(hash(&on_demand), hash(&small));
    }

    #[test]
    fn names_proposals_for_people() {
        assert_eq!(feature_names(WasmFeatures::MEMORY64), "memory64");
        assert_eq!(feature_names(WasmFeatures::CM_ASYNC), "component-model async");
        assert_eq!(feature_names(WasmFeatures::TAIL_CALL | WasmFeatures::GC), "tail-call, gc");
    }
}
