//! Runs histories by hand: `seeds FIRST LAST`, or `seeds planted`, `seeds kth SEED STEPS`,
//! `seeds small LENGTH ORDER`.
use foliant_history::{Go, Histories, History, Shape, Style, plants, run_planted};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize| args.get(n).and_then(|a| a.parse::<u64>().ok());
    let start = Instant::now();
    match args.first().map(String::as_str) {
        Some("planted") => {
            for plant in plants() {
                if args.get(1).is_some_and(|name| name != plant.name()) {
                    continue;
                }
                let caught = run_planted(plant, 0..20);
                let by =
                    caught.by_name.as_ref().map(|r| (r.seed, r.struck, r.findings[0].to_string()));
                println!(
                    "{plant:20} {:22} {:?} others {:?} [{:?}]",
                    plant.checker(),
                    by,
                    caught.others,
                    start.elapsed()
                );
            }
        }
        Some("small") => {
            let order = foliant_units::Order::new(number(2).unwrap_or(0) as u8).expect("an order");
            let small = foliant_history::Small::run(number(1).unwrap_or(3) as u32, order);
            println!("{small:#?} {:?}", start.elapsed());
        }
        Some("kth") => {
            let seed = number(1).unwrap_or(1);
            let steps = number(2).unwrap_or(60) as usize;
            let mut bad = 0;
            let k = History::every_kth(seed, steps, |report| {
                if !report.is_clean() {
                    println!("{report}");
                    bad += 1;
                }
                if bad > 5 { Go::Stop } else { Go::On }
            });
            println!("seed {seed}: {k} runs, {bad} bad, {:?}", start.elapsed());
        }
        _ => {
            let (first, last) = (number(0).unwrap_or(0), number(1).unwrap_or(20));
            let style =
                args.get(2).map(|s| if s == "racing" { Style::Racing } else { Style::Partitioned });
            let shape = |seed| {
                let shape = Shape::of(seed);
                Shape { style: style.unwrap_or(shape.style), ..shape }
            };
            let reports = Histories::seeds(first..last, 2, shape, |report| {
                if !report.is_clean() || last - first == 1 {
                    println!("{report}");
                }
            });
            let bad = reports.iter().filter(|r| !r.is_clean()).count();
            println!("{} histories, {bad} bad, {:?}", reports.len(), start.elapsed());
        }
    }
}
