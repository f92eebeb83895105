//! x
#![allow(missing_docs, clippy::unwrap_used)]
fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let mut s = divvy_core::scenario::Scenario::new();
    for line in text.lines() {
        println!("> {line}");
        let n = s.log.len();
        if let Err(e) = s.line(line) {
            println!("!! {e}");
        }
        for e in &s.log[n..] {
            println!("   {}", serde_json::to_string(&e.event).unwrap());
        }
    }
}
