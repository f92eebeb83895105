//! In pools from seeds: what is said to lift a waiting job's blockers lifts them, what is said to start it starts it, and
//! nothing cheaper does. `cargo xtask bench explain` tries more pools.

use divvy_sim::proof::{Effort, Proof};

fn proof(seeds: std::ops::Range<u64>, effort: Effort) -> Proof {
    let mut proof = Proof::default();
    seeds.for_each(|seed| proof.add(Proof::of_pool(seed, effort)));
    proof
}

fn assert_true(proof: &Proof) {
    assert!(proof.start * 100 >= proof.jobs * 99, "{}", proof.failures.join("\n"));
    assert!(proof.start_when_all_are_lifted * 100 >= proof.jobs * 99, "{}", proof.failures.join("\n"));
    assert_eq!(proof.start_without_one, 0, "{}", proof.failures.join("\n"));
}

#[test]
fn a_fix_starts_its_job_and_all_blockers_but_one_do_not() {
    let proof = proof(0..8, Effort { small: true, set_size: 0 });
    assert!(proof.jobs > 30 && proof.all_but_one > 20, "{proof:?}");
    assert_true(&proof);
}

#[test]
fn so_it_is_in_larger_pools() {
    let proof = proof(4..5, Effort { small: false, set_size: 0 });
    assert!(proof.jobs > 5, "{proof:?}");
    assert_true(&proof);
}

#[test]
fn in_a_small_pool_no_three_changes_are_cheaper() {
    // 52: three grants, two of them needed only because others wait, too. 262: more grants than were looked at two by two.
    // 2887: two edits, though all edits together would not start the job even alone.
    for seeds in [40..44, 52..53, 262..263, 2887..2888] {
        let proof = proof(seeds, Effort { small: true, set_size: 3 });
        assert!(proof.searched > 2 && proof.sets > 20, "{proof:?}");
        assert_eq!(proof.cheaper, 0, "{}", proof.failures.join("\n"));
        assert_true(&proof);
    }
}
