//! The engine: one for the whole host, with its instances in pre-reserved slots where the address space allows it.

use wasmtime::{Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::SandboxError;
use super::config::{AddressSpace, EngineRole, engine_config};

/// Loads that may run `list-tools` at once, beside the calls. They have slots of their own: a host that is busy can still load.
pub(super) const LOADS_AT_ONCE: usize = 4;

/// Linear memories, and tables, that one component may have. Composed components have a few; one memory slot reserves 4 GiB of
/// addresses, so this and the number of calls decide how large the reservation is.
const MEMORIES_PER_COMPONENT: u32 = 8;
const TABLES_PER_COMPONENT: u32 = 16;

/// The ceiling over `table_elements` of any policy: each table slot reserves eight bytes an element.
const MAX_TABLE_ELEMENTS: usize = 128 * 1024;

/// What a freed slot keeps mapped, to be cleared with `memset` instead of being given back. Small guests touch less than this, and a
/// `madvise` for each call costs more than clearing it.
const MEMORY_KEEP_RESIDENT: usize = 256 * 1024;
const TABLE_KEEP_RESIDENT: usize = 16 * 1024;
const STACK_KEEP_RESIDENT: usize = 32 * 1024;

/// How the engine places instances.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Allocation {
    /// In slots that are reserved when the host starts: fast, and a bound on how many there are.
    Pooling,
    /// Each on its own: slower, and needs no large address space.
    OnDemand,
}

/// Makes the engine, with room for `max_calls` calls at once.
///
/// Falls back to allocation on demand, with a warning, where the address space is short (`ulimit -v`, strict overcommit).
pub(super) fn new_engine(max_calls: usize) -> Result<(Engine, Allocation), SandboxError> {
    let mut config = engine_config(EngineRole::Serve, AddressSpace::Large);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(max_calls)));
    match Engine::new(&config) {
        Ok(engine) => Ok((engine, Allocation::Pooling)),
        Err(error) => {
            tracing::warn!("no room for a pool of {max_calls} calls ({error:#}); calls will be slower");
            let mut config = engine_config(EngineRole::Serve, AddressSpace::Small);
            config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
            let engine = Engine::new(&config).map_err(SandboxError::Engine)?;
            Ok((engine, Allocation::OnDemand))
        }
    }
}

fn pool(max_calls: usize) -> PoolingAllocationConfig {
    let slots = u32::try_from(max_calls.saturating_add(LOADS_AT_ONCE)).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(slots)
        .total_stacks(slots)
        .total_memories(slots.saturating_mul(MEMORIES_PER_COMPONENT))
        .total_tables(slots.saturating_mul(TABLES_PER_COMPONENT))
        // Counters without a reservation behind them; the policy's `instances` is what bounds a call.
        .total_core_instances(u32::MAX)
        .max_component_instance_size(16 << 20)
        .max_core_instance_size(4 << 20)
        .max_memories_per_component(MEMORIES_PER_COMPONENT)
        .max_memories_per_module(MEMORIES_PER_COMPONENT)
        .max_tables_per_component(TABLES_PER_COMPONENT)
        .max_tables_per_module(TABLES_PER_COMPONENT)
        .table_elements(MAX_TABLE_ELEMENTS)
        // GC is switched off in the engine.
        .total_gc_heaps(0)
        .max_unused_warm_slots(slots)
        .decommit_batch_size(8)
        .linear_memory_keep_resident(MEMORY_KEEP_RESIDENT)
        .table_keep_resident(TABLE_KEEP_RESIDENT)
        .async_stack_keep_resident(STACK_KEEP_RESIDENT);
    pool
}
