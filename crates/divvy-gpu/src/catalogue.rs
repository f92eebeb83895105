//! The known accelerators by name: canonical keys, nominal sizes and datasheet figures.
//!
//! Users write `h100`; NVML says "NVIDIA H100 80GB HBM3". Both lead to one key here. A product that is not in the
//! table gets a key derived from its name, so that it can be asked for, but no nominal size.

mod table;

use crate::ComputeCapability;
pub use table::{Model, Variant};

/// A product found in the catalogue: its model, and which of the model's sizes it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The model.
    pub model: &'static Model,
    /// The size.
    pub variant: &'static Variant,
    /// Whether the name says that it is a PCIe card.
    is_card: bool,
}

impl Known {
    /// Memory bandwidth in GB/s.
    pub fn bandwidth_gb_s(&self) -> u32 {
        self.variant.card_gb_s.filter(|_| self.is_card).unwrap_or(self.variant.bandwidth_gb_s)
    }
}

/// Finds the product that NVML calls `product`; `memory_mib`, as reported, decides between sizes where the name does not.
pub fn lookup(product: &str, memory_mib: Option<u64>) -> Option<Known> {
    let words = words(product);
    let model = table::MODELS.iter().find(|model| model.is_called(&words))?;
    let by_name = words.iter().find_map(|word| gigabytes(word)).and_then(|gb| model.variant_of(gb));
    let variant = by_name.unwrap_or_else(|| model.nearest_variant(memory_mib));
    Some(Known { model, variant, is_card: words.iter().any(|word| word == "pcie") })
}

/// Returns the canonical key of a product as a user or NVML calls it: `rtx4090` for "RTX 4090", "rtx-4090" and
/// "NVIDIA GeForce RTX 4090". Names that the catalogue does not know become lower case with hyphens, without vendor.
pub fn key(name: &str) -> String {
    if let Some(known) = lookup(name, None) {
        return known.model.key.to_owned();
    }
    words(name).join("-")
}

/// Finds a model by its canonical key.
pub fn by_key(key: &str) -> Option<&'static Model> {
    table::MODELS.iter().find(|model| model.key == key)
}

/// Lists the canonical keys, newest generation first.
pub fn keys() -> impl Iterator<Item = &'static str> {
    table::MODELS.iter().map(|model| model.key)
}

/// Splits a name into lower-case words of letters and digits, without the words that only name the vendor or brand.
fn words(name: &str) -> Vec<String> {
    let lower = name.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let named: Vec<String> = words.clone().filter(|word| !is_brand(word)).map(str::to_owned).collect();
    // A name that consists only of brand words must not vanish.
    if named.is_empty() { words.map(str::to_owned).collect() } else { named }
}

fn is_brand(word: &str) -> bool {
    matches!(word, "nvidia" | "tesla" | "geforce")
}

/// Reads a size word such as `80gb`.
fn gigabytes(word: &str) -> Option<u32> {
    word.strip_suffix("gb")?.parse().ok()
}

/// Words that tell form factor, memory technology or size, and do not make another model.
fn is_form(word: &str) -> bool {
    const FORMS: [&str; 20] = [
        "sxm",
        "sxm2",
        "sxm3",
        "sxm4",
        "sxm5",
        "sxm6",
        "pcie",
        "nvl",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
        "dgxs",
        "fhhl",
        "ls",
        "generation",
        "blackwell",
        "server",
        "workstation",
        "edition",
    ];
    FORMS.contains(&word) || gigabytes(word).is_some()
}

impl Model {
    /// Tells whether a name of these words means this model: one of its names, however it is split into words,
    /// followed by nothing but words of form. ("RTX 4090 Laptop GPU" is another chip than "RTX 4090".)
    fn is_called(&self, words: &[String]) -> bool {
        self.names.iter().chain(std::iter::once(&self.key)).any(|name| {
            let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
            (1..=words.len())
                .any(|n| words[..n].concat() == name && words[n..].iter().all(|word| is_form(word)))
        })
    }

    fn variant_of(&self, gb: u32) -> Option<&'static Variant> {
        self.variants.iter().find(|variant| variant.memory_gb == gb)
    }

    /// Picks the size nearest to what the device reports; the first (most common) when it reports nothing.
    fn nearest_variant(&self, memory_mib: Option<u64>) -> &'static Variant {
        let [first, rest @ ..] = self.variants else { return &Variant::NONE };
        let Some(reported) = memory_mib else { return first };
        rest.iter().fold(first, |best, next| {
            if next.memory_mib.abs_diff(reported) < best.memory_mib.abs_diff(reported) { next } else { best }
        })
    }

    /// The compute capability, for display and filters.
    pub fn compute_capability(&self) -> ComputeCapability {
        let (major, minor) = self.capability;
        ComputeCapability { major, minor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(product: &str, memory_mib: u64, key: &str, memory_gb: u32) {
        let Some(known) = lookup(product, Some(memory_mib)) else {
            panic!("{product} is not in the catalogue")
        };
        assert_eq!((known.model.key, known.variant.memory_gb), (key, memory_gb), "{product}");
    }

    #[test]
    fn cards_may_have_slower_memory_than_modules_of_the_same_size() {
        let gb_s = |product: &str, mib| lookup(product, Some(mib)).map(|known| known.bandwidth_gb_s());
        assert_eq!(gb_s("NVIDIA H100 80GB HBM3", 81_559), Some(3350));
        assert_eq!(gb_s("NVIDIA H100 PCIe", 81_559), Some(2039));
        assert_eq!(gb_s("NVIDIA-A100-80GB-PCIe", 81_920), Some(1935));
        assert_eq!(gb_s("NVIDIA A100-PCIE-40GB", 40_960), Some(1555));
        assert_eq!(gb_s("NVIDIA Next", 40_960), None);
    }

    #[test]
    fn products_as_nvml_names_them_have_their_keys_and_sizes() {
        check("NVIDIA H100 80GB HBM3", 81_559, "h100", 80);
        check("NVIDIA H100 PCIe", 81_559, "h100", 80);
        check("NVIDIA H100 NVL", 95_830, "h100", 94);
        check("NVIDIA H200", 143_771, "h200", 141);
        check("NVIDIA B200", 183_359, "b200", 180);
        check("NVIDIA GB200", 189_471, "gb200", 186);
        check("NVIDIA GH200 480GB", 97_871, "gh200", 96);
        check("NVIDIA A100-SXM4-40GB", 40_960, "a100", 40);
        check("NVIDIA A100-SXM4-80GB", 81_920, "a100", 80);
        check("NVIDIA A100-PCIE-40GB", 40_960, "a100", 40);
        check("NVIDIA A100 80GB PCIe", 81_920, "a100", 80);
        check("Tesla V100-SXM2-16GB", 16_160, "v100", 16);
        check("Tesla V100-SXM3-32GB", 32_510, "v100", 32);
        check("Tesla V100-PCIE-16GB", 16_160, "v100", 16);
        check("Tesla P100-PCIE-16GB", 16_280, "p100", 16);
        check("Tesla P40", 22_919, "p40", 24);
        check("Tesla K80", 11_441, "k80", 12);
        check("Tesla T4", 15_360, "t4", 16);
        check("NVIDIA A10", 23_028, "a10", 24);
        check("NVIDIA A10G", 23_028, "a10g", 24);
        check("NVIDIA A40", 46_068, "a40", 48);
        check("NVIDIA L4", 23_034, "l4", 24);
        check("NVIDIA L40S", 46_068, "l40s", 48);
        check("NVIDIA RTX 6000 Ada Generation", 49_140, "rtx-6000-ada", 48);
        check("Quadro RTX 6000", 24_220, "quadro-rtx-6000", 24);
        check("NVIDIA RTX A6000", 49_140, "rtx-a6000", 48);
        check("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887, "rtx-pro-6000", 96);
        check("NVIDIA GeForce RTX 4090", 24_564, "rtx4090", 24);
        check("NVIDIA GeForce RTX 3090 Ti", 24_564, "rtx3090-ti", 24);
        check("NVIDIA GeForce GTX 1080 Ti", 11_264, "gtx1080-ti", 11);
        check("NVIDIA TITAN RTX", 24_220, "titan-rtx", 24);
    }

    #[test]
    fn a_size_that_the_name_leaves_open_comes_from_the_reported_memory() {
        check("NVIDIA A100", 40_536, "a100", 40);
        check("NVIDIA A100", 81_251, "a100", 80);
        check("NVIDIA H100", 95_830, "h100", 94);
    }

    #[test]
    fn users_spellings_lead_to_the_same_key() {
        for name in ["RTX 4090", "rtx-4090", "rtx4090", "GeForce RTX4090", "NVIDIA GeForce RTX 4090"] {
            assert_eq!(key(name), "rtx4090", "{name}");
        }
        for name in ["H100", "h100", "h100-sxm5", "H100-80GB"] {
            assert_eq!(key(name), "h100", "{name}");
        }
        assert_eq!(key("rtx6000ada"), "rtx-6000-ada");
    }

    #[test]
    fn unknown_products_get_a_key_of_their_name_and_no_size() {
        assert_eq!(key("NVIDIA GeForce RTX 4090 Laptop GPU"), "rtx-4090-laptop-gpu");
        assert_eq!(key("NVIDIA Graphics Device"), "graphics-device");
        assert_eq!(key("NVIDIA"), "nvidia");
        assert_eq!(key("GRID A100-10C"), "grid-a100-10c");
        assert_eq!(lookup("NVIDIA X1000 Ultra", Some(1)), None);
    }

    #[test]
    fn every_key_finds_itself_and_every_model_has_a_size() {
        for model in table::MODELS {
            assert_eq!(key(model.key), model.key);
            assert!(!model.variants.is_empty(), "{}", model.key);
            assert_eq!(by_key(model.key), Some(model));
            for variant in model.variants {
                let found = lookup(&format!("NVIDIA {}", model.product), Some(variant.memory_mib));
                assert_eq!(found.map(|known| known.model.key), Some(model.key));
            }
        }
    }

    #[test]
    fn keys_are_not_used_twice() {
        let mut all: Vec<&str> = keys().collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
