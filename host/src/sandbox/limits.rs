//! What a store may allocate: the sum over memories and over tables, and how many there are.

use wasmtime::ResourceLimiter;

use crate::policy::Limits;

/// Bounds the allocations of one call, and remembers the peak and what was refused.
///
/// wasmtime's own `StoreLimits` bounds each memory by itself; a component may have many.
#[derive(Debug)]
pub(super) struct Limiter {
    max_memory: usize,
    max_table_elements: usize,
    max_instances: usize,
    memory: usize,
    peak_memory: usize,
    table_elements: usize,
    refused: Option<Refused>,
}

/// An allocation that was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refused {
    /// Linear memory: the sum, in bytes, that it would have come to.
    Memory(usize),
    /// Table elements: the sum that it would have come to.
    TableElements(usize),
}

impl Limiter {
    pub(super) fn new(limits: &Limits) -> Self {
        let size = |limit| usize::try_from(limit).unwrap_or(usize::MAX);
        Self {
            max_memory: size(limits.memory),
            max_table_elements: size(limits.table_elements),
            max_instances: size(limits.instances),
            memory: 0,
            peak_memory: 0,
            table_elements: 0,
            refused: None,
        }
    }

    /// The peak of the sum over all linear memories, in bytes.
    pub(super) fn peak_memory(&self) -> u64 {
        self.peak_memory as u64
    }

    /// The last allocation that was refused.
    pub(super) fn refused(&self) -> Option<Refused> {
        self.refused
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.memory.saturating_add(desired.saturating_sub(current));
        if total > self.max_memory {
            self.refused = Some(Refused::Memory(total));
            return Ok(false);
        }
        // A memory that is past its own maximum fails after this; then nothing was allocated.
        if maximum.is_none_or(|maximum| desired <= maximum) {
            self.memory = total;
            self.peak_memory = self.peak_memory.max(total);
        }
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.table_elements.saturating_add(desired.saturating_sub(current));
        if total > self.max_table_elements {
            self.refused = Some(Refused::TableElements(total));
            return Ok(false);
        }
        if maximum.is_none_or(|maximum| desired <= maximum) {
            self.table_elements = total;
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.max_instances
    }

    fn tables(&self) -> usize {
        self.max_instances
    }

    fn memories(&self) -> usize {
        self.max_instances
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 65536;

    fn limiter(memory: u64, table_elements: u64) -> Limiter {
        Limiter::new(&Limits { memory, table_elements, ..Limits::default() })
    }

    #[test]
    fn bounds_the_sum_over_memories_not_each() {
        let mut limiter = limiter(3 * PAGE as u64, 10);
        assert!(limiter.memory_growing(0, 2 * PAGE, None).unwrap());
        assert!(limiter.memory_growing(0, PAGE, None).unwrap());
        assert!(!limiter.memory_growing(PAGE, 2 * PAGE, None).unwrap());
        assert_eq!(limiter.peak_memory(), 3 * PAGE as u64);
        assert_eq!(limiter.refused(), Some(Refused::Memory(4 * PAGE)));
    }

    #[test]
    fn bounds_the_sum_over_tables() {
        let mut limiter = limiter(0, 10);
        assert!(limiter.table_growing(0, 6, None).unwrap());
        assert!(!limiter.table_growing(0, 5, None).unwrap());
        assert_eq!(limiter.refused(), Some(Refused::TableElements(11)));
        assert!(limiter.table_growing(0, 4, None).unwrap());
    }

    #[test]
    fn counts_nothing_for_a_growth_past_the_memorys_own_maximum() {
        let mut limiter = limiter(10 * PAGE as u64, 10);
        assert!(limiter.memory_growing(PAGE, 3 * PAGE, Some(2 * PAGE)).unwrap());
        assert_eq!(limiter.peak_memory(), 0);
        assert_eq!(limiter.refused(), None);
    }

    #[test]
    fn does_not_overflow() {
        let mut limiter = limiter(u64::MAX, u64::MAX);
        assert!(limiter.memory_growing(0, usize::MAX, None).unwrap());
        assert!(limiter.memory_growing(0, usize::MAX, None).unwrap());
        assert!(limiter.table_growing(0, usize::MAX, None).unwrap());
    }
}
