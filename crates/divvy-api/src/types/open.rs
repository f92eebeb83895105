//! Open enums: a word that this version does not know is kept as it came.

/// Makes an enum of words with a last variant `Other` for words of another version.
macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// A word of a newer version.
            Other(String),
        }

        impl $name {
            /// All words of this version.
            pub const WORDS: &[&str] = &[$($word),*];

            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(&*<std::borrow::Cow<'de, str>>::deserialize(deserializer)?))
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                let words = format!("One of: {}. Further words may come.", Self::WORDS.join(", "));
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .description(Some(words))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    };
}

pub(crate) use open_enum;

#[cfg(test)]
mod tests {
    use crate::types::JobState;

    #[test]
    fn a_state_of_a_newer_version_is_kept_as_it_came() {
        let state: JobState = serde_json::from_str("\"dreaming\"").unwrap();
        assert_eq!(state, JobState::Other("dreaming".into()));
        assert_eq!(serde_json::to_string(&state).unwrap(), "\"dreaming\"");
        assert_eq!(serde_json::from_str::<JobState>("\"running\"").unwrap(), JobState::Running);
    }
}
