//! What an hour of a device costs, by model: the currency in which hours of different models compare.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::amount::{is_cut_to_nothing, scaled};

/// Prices of models, per device-hour. A model without a price counts like the dearest one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prices(pub BTreeMap<String, Price>);

/// A price in thousandths of its currency: 2.90 is 2900. Written as a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(pub i64);

impl Prices {
    /// What `milli` thousandths of a device of a model are worth, in thousandths of a device of the dearest model.
    pub fn worth_milli(&self, model: &str, milli: i64) -> i64 {
        let dearest = self.0.values().map(|price| price.0).max().filter(|dearest| *dearest > 0);
        let (Some(dearest), Some(Price(price))) = (dearest, self.0.get(model)) else { return milli };
        (i128::from(milli) * i128::from(*price) / i128::from(dearest)) as i64
    }

    /// The same prices by the catalogue's keys of the models, which are in lower case; the error says which model stands twice.
    pub(crate) fn by_key(self) -> Result<Self, String> {
        let mut prices = BTreeMap::new();
        for (model, price) in self.0 {
            let key = model.to_ascii_lowercase();
            if prices.insert(key.clone(), price).is_some() {
                return Err(format!("prices names {key} twice: capitals make no difference"));
            }
        }
        Ok(Self(prices))
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        let rest = format!("{rest:03}");
        match rest.trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            rest => write!(f, "{whole}.{rest}"),
        }
    }
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl serde::de::Visitor<'_> for Number {
            type Value = Price;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a price per device-hour, such as 2.90")
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Price, E> {
                self.visit_str(&value.to_string())
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Price, E> {
                self.visit_str(&value.to_string())
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Price, E> {
                self.visit_str(&value.to_string())
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Price, E> {
                let wrong = || {
                    E::custom(format!("{text:?} is no price: write what a device-hour costs, such as 2.90"))
                };
                let milli = scaled(text, 1000).filter(|milli| *milli <= MOST_MILLI);
                milli.filter(|milli| !is_cut_to_nothing(text, *milli)).map(Price).ok_or_else(wrong)
            }
        }
        deserializer.deserialize_any(Number)
    }
}

/// A million per hour: more is a mistake.
const MOST_MILLI: i64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prices(text: &str) -> Prices {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn an_hour_counts_by_its_price_beside_the_dearest() {
        let prices = prices("{h100: 2.90, l4: 0.55, t4: 0}");
        let worth = |model| prices.worth_milli(model, 1000);
        assert_eq!(["h100", "l4", "t4", "unknown"].map(worth), [1000, 189, 0, 1000]);
    }

    #[test]
    fn where_nothing_costs_anything_all_count_alike() {
        assert_eq!(prices("{h100: 0, l4: 0}").worth_milli("l4", 500), 500);
        assert_eq!(Prices::default().worth_milli("l4", 500), 500);
    }

    #[test]
    fn nonsense_is_no_price() {
        for text in ["-1", "much", "0.0001", "10000000", "''", "[1]"] {
            assert!(serde_saphyr::from_str::<Prices>(&format!("h100: {text}")).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn prices_are_read_as_they_are_written(milli in 0..=MOST_MILLI) {
            let prices = Prices([("h100".to_owned(), Price(milli))].into());
            let text = serde_json::to_string(&prices).unwrap();
            prop_assert_eq!(serde_json::from_str::<Prices>(&text).unwrap(), prices);
        }
    }
}
