//! Planted bugs, defined alike in every protocol.

/// Defines `Mutation`, the deliberate bugs of a protocol, each with its name on the command line.
#[macro_export]
macro_rules! mutations {
    ($($(#[$doc:meta])+ $bug:ident = $name:literal,)+) => {
        /// One planted bug; it acts only where the crate is built with the feature `mutations`.
        #[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
        pub enum Mutation {
            $($(#[$doc])+ $bug,)+
        }

        impl Mutation {
            /// All of them.
            pub const ALL: [Mutation; [$($name),+].len()] = [$(Mutation::$bug),+];

            /// The name on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Mutation::$bug => $name,)+
                }
            }

            /// The names of all.
            pub(crate) fn names() -> Vec<&'static str> {
                Mutation::ALL.map(Mutation::name).to_vec()
            }

            /// The one of this name, if there is one.
            pub(crate) fn named(name: &str) -> Option<Mutation> {
                Mutation::ALL.into_iter().find(|mutation| mutation.name() == name)
            }

            /// Whether this is the one that is planted, and may act.
            pub(crate) fn acts(self, planted: Option<Mutation>) -> bool {
                cfg!(feature = "mutations") && planted == Some(self)
            }
        }
    };
}
