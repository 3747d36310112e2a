//! Texts that people and files write: sizes, policies, switches.
//!
//! A text is refused with a reason that can be printed, or it means something that, printed, is
//! read as the same again. The command-line form of all sizes is compared with a slower reading of
//! it.
#![no_main]

use foliant::Policy;
use foliant::fault::{Defrag, Global, Orders, Size, parse_order};
use foliant_linux::thp_anon;
use foliant_trace::replay::Choice;
use foliant_units::{Bytes, Order};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Bytes::parse(text) {
        Ok(bytes) => assert_eq!(Bytes::parse(&bytes.to_string()), Ok(bytes)),
        Err(why) => drop(why.to_string()),
    }
    match parse_order(text) {
        Ok(order) => assert_eq!(Bytes::parse(text), Ok(order.bytes())),
        Err(why) => drop(why.to_string()),
    }
    if let Ok(size) = Size::parse(text) {
        assert_eq!(size.label(), text);
    }
    if let Ok(global) = Global::parse(text) {
        assert_eq!(format!("{global:?}").to_lowercase(), text);
    }
    if let Ok(defrag) = text.parse::<Defrag>() {
        assert_eq!(defrag.to_string().parse::<Defrag>(), Ok(defrag));
    }
    match Choice::parse_list(text) {
        Ok(list) => {
            let again: Vec<String> = list.iter().map(Choice::to_string).collect();
            assert_eq!(Choice::parse_list(&again.join(",")), Ok(list));
        }
        Err(why) => drop(why.to_string()),
    }
    sizes_at_the_start(text);
});

/// Every size for itself: whichever part of the text mentions it last decides.
fn sizes_at_the_start(text: &str) {
    let before = Policy { always: Orders::ANON, global: Global::Always, ..Policy::BASE_ONLY };
    match thp_anon(&before, text) {
        Ok(policy) => {
            assert_eq!(policy.global, before.global, "the global switch stays");
            for order in Order::all() {
                assert_eq!(policy.get(order), last_mention(text, order), "{order:?} in {text:?}");
            }
        }
        Err(error) => {
            assert!(text.contains(error.part), "{:?} is no part of {text:?}", error.part);
            drop(error.to_string());
        }
    }
}

fn last_mention(text: &str, order: Order) -> Size {
    let mut size = Size::Never;
    for part in text.split(';') {
        let (sizes, state) = part.split_once(':').expect("it was taken");
        for stretch in sizes.split(',') {
            let (low, high) = stretch.split_once('-').unwrap_or((stretch, stretch));
            let bytes = |text| Bytes::parse(text).expect("it was taken");
            if (bytes(low)..=bytes(high)).contains(&order.bytes()) {
                size = Size::parse(state).expect("it was taken");
            }
        }
    }
    size
}
