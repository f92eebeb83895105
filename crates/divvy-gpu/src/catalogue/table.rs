//! The table itself. Reported sizes are those of NVML on current drivers with ECC as shipped. Bandwidth and links are
//! those of the datasheets, for the form factor with the highest figures.

/// A model of accelerator.
#[derive(Debug, PartialEq, Eq)]
pub struct Model {
    /// The canonical key, as users write it: `h100`.
    pub key: &'static str,
    /// The name under which a pretended device of this model appears.
    pub product: &'static str,
    /// Other names that NVML and users use for it, without vendor and form.
    pub(super) names: &'static [&'static str],
    /// The sizes it is sold in, the most common first.
    pub variants: &'static [Variant],
    /// CUDA compute capability.
    pub(super) capability: (u32, u32),
    /// NVLinks per device in an NVLink system, 0 for models without.
    pub nvlinks: u32,
}

/// A size in which a model is sold.
#[derive(Debug, PartialEq, Eq)]
pub struct Variant {
    /// The size on the box, in GB.
    pub memory_gb: u32,
    /// What NVML reports for it, in MiB.
    pub memory_mib: u64,
    /// Memory bandwidth in GB/s.
    pub bandwidth_gb_s: u32,
    /// The bandwidth of PCIe cards, where these have different memory.
    pub(super) card_gb_s: Option<u32>,
}

impl Variant {
    /// Stands in for a model without sizes; a test shows that there is none.
    pub(super) const NONE: Self = Self { memory_gb: 0, memory_mib: 0, bandwidth_gb_s: 0, card_gb_s: None };
}

const fn size(memory_gb: u32, memory_mib: u64, bandwidth_gb_s: u32) -> Variant {
    Variant { memory_gb, memory_mib, bandwidth_gb_s, card_gb_s: None }
}

const fn size_with_cards(memory_gb: u32, memory_mib: u64, bandwidth_gb_s: u32, card_gb_s: u32) -> Variant {
    Variant { memory_gb, memory_mib, bandwidth_gb_s, card_gb_s: Some(card_gb_s) }
}

/// The models, newest generation first.
#[rustfmt::skip]
pub(super) static MODELS: &[Model] = &[
    Model { key: "b300", product: "B300", capability: (10, 3), nvlinks: 18, names: &[],
            variants: &[size(288, 275_040, 8000)] },
    Model { key: "gb300", product: "GB300", capability: (10, 3), nvlinks: 18, names: &[],
            variants: &[size(288, 284_208, 8000)] },
    Model { key: "b200", product: "B200", capability: (10, 0), nvlinks: 18, names: &[],
            variants: &[size(180, 183_359, 8000)] },
    Model { key: "gb200", product: "GB200", capability: (10, 0), nvlinks: 18, names: &[],
            variants: &[size(186, 189_471, 8000)] },
    Model { key: "rtx-pro-6000", product: "RTX PRO 6000 Blackwell Server Edition", capability: (12, 0), nvlinks: 0, names: &[],
            variants: &[size(96, 97_887, 1597)] },
    Model { key: "rtx5090", product: "GeForce RTX 5090", capability: (12, 0), nvlinks: 0, names: &[],
            variants: &[size(32, 32_607, 1792)] },
    Model { key: "rtx5080", product: "GeForce RTX 5080", capability: (12, 0), nvlinks: 0, names: &[],
            variants: &[size(16, 16_303, 960)] },
    Model { key: "gh200", product: "GH200 480GB", capability: (9, 0), nvlinks: 18, names: &[],
            variants: &[size(96, 97_871, 4000), size(144, 147_456, 4900)] },
    Model { key: "h200", product: "H200", capability: (9, 0), nvlinks: 18, names: &[],
            variants: &[size(141, 143_771, 4800)] },
    Model { key: "h100", product: "H100 80GB HBM3", capability: (9, 0), nvlinks: 18, names: &[],
            variants: &[size_with_cards(80, 81_559, 3350, 2039), size(94, 95_830, 3900), size(96, 97_871, 4000), size(64, 65_247, 2000)] },
    Model { key: "h800", product: "H800", capability: (9, 0), nvlinks: 8, names: &[],
            variants: &[size_with_cards(80, 81_559, 3350, 2039)] },
    Model { key: "h20", product: "H20", capability: (9, 0), nvlinks: 18, names: &[],
            variants: &[size(96, 97_871, 4000), size(141, 143_771, 4800)] },
    Model { key: "l40s", product: "L40S", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(48, 46_068, 864)] },
    Model { key: "l40", product: "L40", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(48, 46_068, 864)] },
    Model { key: "l20", product: "L20", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(48, 46_068, 864)] },
    Model { key: "l4", product: "L4", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(24, 23_034, 300)] },
    Model { key: "l2", product: "L2", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(24, 23_034, 300)] },
    Model { key: "rtx-6000-ada", product: "RTX 6000 Ada Generation", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(48, 49_140, 960)] },
    Model { key: "rtx-5000-ada", product: "RTX 5000 Ada Generation", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(32, 32_760, 576)] },
    Model { key: "rtx-4500-ada", product: "RTX 4500 Ada Generation", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(24, 24_570, 432)] },
    Model { key: "rtx-4000-ada", product: "RTX 4000 Ada Generation", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(20, 20_475, 360)] },
    Model { key: "rtx4090", product: "GeForce RTX 4090", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(24, 24_564, 1008)] },
    Model { key: "rtx4080", product: "GeForce RTX 4080", capability: (8, 9), nvlinks: 0, names: &[],
            variants: &[size(16, 16_376, 717)] },
    Model { key: "a100", product: "A100-SXM4-80GB", capability: (8, 0), nvlinks: 12, names: &[],
            variants: &[size_with_cards(80, 81_920, 2039, 1935), size(40, 40_960, 1555), size(64, 65_536, 1640)] },
    Model { key: "a800", product: "A800-SXM4-80GB", capability: (8, 0), nvlinks: 8, names: &[],
            variants: &[size_with_cards(80, 81_920, 2039, 1935), size(40, 40_960, 1555)] },
    Model { key: "a30", product: "A30", capability: (8, 0), nvlinks: 4, names: &[],
            variants: &[size(24, 24_576, 933)] },
    Model { key: "a40", product: "A40", capability: (8, 6), nvlinks: 4, names: &[],
            variants: &[size(48, 46_068, 696)] },
    Model { key: "a16", product: "A16", capability: (8, 6), nvlinks: 0, names: &[],
            variants: &[size(16, 15_356, 200)] },
    Model { key: "a10g", product: "A10G", capability: (8, 6), nvlinks: 0, names: &[],
            variants: &[size(24, 23_028, 600)] },
    Model { key: "a10", product: "A10", capability: (8, 6), nvlinks: 0, names: &[],
            variants: &[size(24, 23_028, 600)] },
    Model { key: "a2", product: "A2", capability: (8, 6), nvlinks: 0, names: &[],
            variants: &[size(16, 15_356, 200)] },
    Model { key: "rtx-a6000", product: "RTX A6000", capability: (8, 6), nvlinks: 4, names: &[],
            variants: &[size(48, 49_140, 768)] },
    Model { key: "rtx-a5000", product: "RTX A5000", capability: (8, 6), nvlinks: 4, names: &[],
            variants: &[size(24, 24_564, 768)] },
    Model { key: "rtx-a4500", product: "RTX A4500", capability: (8, 6), nvlinks: 4, names: &[],
            variants: &[size(20, 20_470, 640)] },
    Model { key: "rtx-a4000", product: "RTX A4000", capability: (8, 6), nvlinks: 0, names: &[],
            variants: &[size(16, 16_376, 448)] },
    Model { key: "rtx3090-ti", product: "GeForce RTX 3090 Ti", capability: (8, 6), nvlinks: 4, names: &[],
            variants: &[size(24, 24_564, 1008)] },
    Model { key: "rtx3090", product: "GeForce RTX 3090", capability: (8, 6), nvlinks: 4, names: &[],
            variants: &[size(24, 24_576, 936)] },
    Model { key: "rtx3080", product: "GeForce RTX 3080", capability: (8, 6), nvlinks: 0, names: &[],
            variants: &[size(10, 10_240, 760), size(12, 12_288, 912)] },
    Model { key: "t4", product: "Tesla T4", capability: (7, 5), nvlinks: 0, names: &[],
            variants: &[size(16, 15_360, 320)] },
    Model { key: "quadro-rtx-8000", product: "Quadro RTX 8000", capability: (7, 5), nvlinks: 2, names: &[],
            variants: &[size(48, 46_080, 672)] },
    Model { key: "quadro-rtx-6000", product: "Quadro RTX 6000", capability: (7, 5), nvlinks: 2, names: &[],
            variants: &[size(24, 24_220, 672)] },
    Model { key: "titan-rtx", product: "TITAN RTX", capability: (7, 5), nvlinks: 2, names: &[],
            variants: &[size(24, 24_220, 672)] },
    Model { key: "rtx2080-ti", product: "GeForce RTX 2080 Ti", capability: (7, 5), nvlinks: 2, names: &[],
            variants: &[size(11, 11_264, 616)] },
    Model { key: "v100", product: "Tesla V100-SXM2-16GB", capability: (7, 0), nvlinks: 6, names: &[],
            variants: &[size(16, 16_160, 900), size(32, 32_510, 900)] },
    Model { key: "titan-v", product: "TITAN V", capability: (7, 0), nvlinks: 0, names: &[],
            variants: &[size(12, 12_288, 653)] },
    Model { key: "p100", product: "Tesla P100-SXM2-16GB", capability: (6, 0), nvlinks: 4, names: &[],
            variants: &[size(16, 16_280, 732), size(12, 12_198, 549)] },
    Model { key: "p40", product: "Tesla P40", capability: (6, 1), nvlinks: 0, names: &[],
            variants: &[size(24, 22_919, 346)] },
    Model { key: "p4", product: "Tesla P4", capability: (6, 1), nvlinks: 0, names: &[],
            variants: &[size(8, 7_611, 192)] },
    Model { key: "gtx1080-ti", product: "GeForce GTX 1080 Ti", capability: (6, 1), nvlinks: 0, names: &[],
            variants: &[size(11, 11_264, 484)] },
    Model { key: "m60", product: "Tesla M60", capability: (5, 2), nvlinks: 0, names: &[],
            variants: &[size(8, 8_129, 160)] },
    Model { key: "m40", product: "Tesla M40", capability: (5, 2), nvlinks: 0, names: &[],
            variants: &[size(12, 11_448, 288), size(24, 22_945, 288)] },
    Model { key: "k80", product: "Tesla K80", capability: (3, 7), nvlinks: 0, names: &[],
            variants: &[size(12, 11_441, 240)] },
    Model { key: "k40", product: "Tesla K40m", capability: (3, 5), nvlinks: 0, names: &["k40m", "k40c"],
            variants: &[size(12, 11_441, 288)] },
];
