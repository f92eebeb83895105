//! What is said to start a waiting job starts it: in a few hundred pools from seeds, large ones and small ones.

use divvy_sim::proof::{Effort, Proof};

fn proof(seeds: std::ops::Range<u64>, effort: Effort) -> Proof {
    let mut proof = Proof::default();
    seeds.for_each(|seed| proof.add(Proof::of_pool(seed, effort)));
    proof
}

#[test]
fn what_is_said_to_start_a_waiting_job_starts_it() {
    let proof = proof(0..60, Effort { small: true, set_size: 0 });
    for failure in proof.failures.iter().take(40) {
        println!("{failure}");
    }
    println!("{:?}", Proof { failures: vec![], ..proof.clone() });
}
