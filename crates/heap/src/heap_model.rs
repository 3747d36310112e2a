//! The heap against a list of what was allocated: random sequences, each step compared.
#![allow(unsafe_code)]

use crate::Heap;
use crate::tests::{PAGES, Tested, Watched};
use foliant_units::Order;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;

/// What is allocated, and the byte that it is full of.
struct Held {
    memory: NonNull<u8>,
    layout: Layout,
    byte: u8,
}

impl Held {
    fn start(&self) -> usize {
        self.memory.addr().get()
    }
    fn check(&self, len: usize) {
        // SAFETY: it is held, at least so long, and was written.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), len) };
        assert!(bytes.iter().all(|byte| *byte == self.byte), "{:?} is another's", self.layout);
    }
    fn fill(&self) {
        // SAFETY: it is held, and so long.
        unsafe { self.memory.write_bytes(self.byte, self.layout.size()) };
    }
}

struct Model {
    heap: Tested,
    held: Vec<Held>,
    state: u64,
    refused: u64,
}

impl Model {
    fn draw(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % bound
    }
    fn size(&mut self) -> usize {
        let most = [48, 500, 4100, 9000, 300_000][self.draw(5)];
        1 + self.draw(most)
    }
    /// It is aligned, in a block that is lent, and nobody else's.
    fn is_new(&self, new: &Held, but: Option<usize>) {
        let (start, end) = (new.start(), new.start() + new.layout.size());
        assert_eq!(start % new.layout.align(), 0);
        let lent = self.heap.lender().lent.lock().unwrap();
        let (block, order) = lent.range(..=start).next_back().expect("a block is below");
        assert!(end <= block + order.bytes().get() as usize, "{:?} leaves its block", new.layout);
        for (nth, other) in self.held.iter().enumerate() {
            let apart = other.start() >= end || start >= other.start() + other.layout.size();
            assert!(apart || but == Some(nth), "{:?} and {:?} overlap", new.layout, other.layout);
        }
    }
    fn allocate(&mut self) {
        let (size, align) = (self.size(), 1 << self.draw(14));
        let layout = Layout::from_size_align(size, align).unwrap();
        // SAFETY: the size is not 0.
        let Some(memory) = NonNull::new(unsafe { self.heap.alloc(layout) }) else {
            self.refused += 1;
            return;
        };
        let byte = self.draw(255) as u8;
        let new = Held { memory, layout, byte };
        self.is_new(&new, None);
        new.fill();
        self.held.push(new);
    }
    fn free(&mut self, nth: usize) {
        let old = self.held.swap_remove(nth);
        old.check(old.layout.size());
        // SAFETY: it was held, and is no longer.
        unsafe { self.heap.dealloc(old.memory.as_ptr(), old.layout) };
    }
    fn resize(&mut self, nth: usize) {
        let size = self.size();
        let Held { memory, layout, byte } = self.held[nth];
        // SAFETY: it is held with this layout, and the size is not 0.
        let moved = unsafe { self.heap.realloc(memory.as_ptr(), layout, size) };
        let Some(memory) = NonNull::new(moved) else {
            self.refused += 1;
            self.held[nth].check(layout.size());
            return;
        };
        let new =
            Held { memory, layout: Layout::from_size_align(size, layout.align()).unwrap(), byte };
        self.is_new(&new, Some(nth));
        new.check(size.min(layout.size()));
        new.fill();
        self.held[nth] = new;
    }
    fn step(&mut self, many: usize) {
        let (kind, some) = (self.draw(10), self.held.len());
        match kind {
            0..5 if some < many => self.allocate(),
            5..7 if some > 0 => {
                let nth = self.draw(some);
                self.resize(nth);
            }
            _ if some > 0 => {
                let nth = self.draw(some);
                self.free(nth);
            }
            _ => self.allocate(),
        }
        let lent = self.heap.lender().lent.lock().unwrap();
        let pages: u64 = lent.values().map(|order| order.pages().get()).sum();
        assert_eq!(self.heap.pages().get(), pages);
        assert!(pages <= PAGES.get());
    }
}

#[test]
fn random_sequences_are_as_a_list_has_them() {
    let (seeds, steps) = if cfg!(miri) { (1, 150) } else { (12, 4000) };
    let mut refused = 0;
    for seed in 1..=seeds {
        // With few held there is memory, with many it runs out.
        let many = [20, 120, 400][seed as usize % 3];
        let most = [Order::SIZE_2M, Order::new(6).unwrap()][seed as usize % 2];
        let heap = Heap::new(Watched::new(most));
        let state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
        let mut model = Model { heap, held: Vec::new(), state, refused: 0 };
        (0..steps).for_each(|_| model.step(many));
        while !model.held.is_empty() {
            model.free(0);
        }
        assert!(model.heap.pages().get() <= 2 * 16, "the first arena, and one that is kept");
        refused += model.refused;
    }
    assert!(cfg!(miri) || refused > 0, "memory ran out at times");
}
