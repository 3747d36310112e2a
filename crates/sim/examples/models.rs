//! Prints the cost models with the source of every constant.

fn main() {
    for model in foliant_sim::CostModel::ALL {
        println!("{model}");
    }
}
