//! The plan against a naive twin: a vector of pages, each with when and how it is cleared.

use super::{Clearing, Plan, PlanError, ZeroGrain};
use alloc::vec;
use alloc::vec::Vec;
use foliant_machine::Caching;
use foliant_units::{Bytes, Frame, FrameRange, Order, Pages};
use proptest::prelude::*;

/// When each page of the block is cleared (by its extent's number), and how warm.
fn naive(pages: u64, touched: Option<u64>, radius: u64, far: Caching) -> Vec<(u32, Caching)> {
    let near = |page: u64| touched.is_some_and(|touched| page.abs_diff(touched) <= radius);
    (0..pages)
        .map(|page| match touched {
            _ if near(page) => (2, Caching::Cached),
            Some(touched) if page < touched => (1, far),
            _ => (0, far),
        })
        .collect()
}

fn planned(plan: &Plan, head: u64, pages: u64) -> Vec<Vec<(usize, Caching)>> {
    let mut found = vec![Vec::new(); pages as usize];
    for (nth, extent) in plan.extents().enumerate() {
        for frame in extent.frames.iter() {
            found[(frame.get() - head) as usize].push((nth, extent.caching));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_page_is_cleared_once_far_parts_first(
        order in 0u8..=11, block in 0u64..4, touch in any::<u64>(), known in any::<bool>(),
        radius in prop_oneof![0u64..6, 0u64..3000, Just(u64::MAX)],
        grain in prop_oneof![Just(0u64), 1u64..600], past in any::<bool>(), apart in 0u8..=12,
    ) {
        let order = Order::new(order).unwrap();
        let pages = order.pages().get();
        let head = block * pages;
        let far = if past { Caching::NonTemporal } else { Caching::Cached };
        let clearing = Clearing {
            grain: ZeroGrain::new(Bytes::new(grain * 4096)).unwrap_or(ZeroGrain::WHOLE),
            radius: Pages::new(radius),
            parts_from: Order::new(apart).unwrap(),
            ..Clearing::default()
        };
        let touched = known.then_some(touch % pages);
        let plan = Plan::new(
            (Frame::new(head), order), touched.map(|at| Frame::new(head + at)), &clearing, far,
        ).unwrap();
        let apart = order >= clearing.parts_from;
        let expect = match apart {
            true => naive(pages, touched, radius, far),
            false => vec![(0, Caching::Cached); pages as usize],
        };
        let found = planned(&plan, head, pages);
        let mut last = [0; 3];
        for (page, found) in found.iter().enumerate() {
            prop_assert_eq!(found.len(), 1, "page {} is cleared {} times", page, found.len());
            let (nth, caching) = found[0];
            let (part, want) = expect[page];
            prop_assert_eq!(caching, want, "page {}", page);
            last[part as usize] = last[part as usize].max(nth + 1);
        }
        // No page of a later part is cleared before one of an earlier part.
        for (page, found) in found.iter().enumerate() {
            let part = expect[page].0 as usize;
            prop_assert!(last[..part].iter().all(|upto| *upto <= found[0].0), "page {}", page);
        }
        let most = if grain == 0 { 3 } else { pages.div_ceil(grain) + 2 };
        prop_assert!(plan.extents().count() as u64 <= most);
        prop_assert!(plan.extents().all(|e| e.frames.pages().get() > 0));
    }
}

#[test]
fn a_crooked_base_and_a_page_elsewhere_are_refused() {
    let clearing = Clearing::default();
    let plan = |head, touched: Option<u64>| {
        let touched = touched.map(Frame::new);
        Plan::new((Frame::new(head), Order::SIZE_2M), touched, &clearing, Caching::NonTemporal)
    };
    assert_eq!(plan(513, None), Err(PlanError::Misaligned(Frame::new(513), Order::SIZE_2M)));
    let block = FrameRange::new(Frame::new(512), Pages::new(512)).unwrap();
    for outside in [0, 511, 1024, u64::MAX >> 12] {
        let outside = Frame::new(outside);
        let error = plan(512, Some(outside.get())).unwrap_err();
        assert_eq!(error, PlanError::Outside(outside, block));
    }
    assert!(plan(512, Some(512)).is_ok() && plan(512, Some(1023)).is_ok());
}
