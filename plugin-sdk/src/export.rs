//! How a plugin offers its tools to the host.

/// Offers tools to the host: `export!(A, B)`, once in a plugin.
///
/// On wasm it makes the component's exports. Elsewhere it only checks that the types are tools, and adds a unit test that finds what
/// a host would refuse: a bad or doubled name, a missing description, arguments that are not an object.
#[macro_export]
macro_rules! export {
    ($($tool:ty),+ $(,)?) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            impl $crate::__private::Plugin for Component {
                fn definitions() -> ::std::vec::Vec<$crate::__private::Definition> {
                    ::std::vec![$($crate::__private::define::<$tool>()),+]
                }

                fn call(name: &str, arguments: &str, context: &$crate::Context) -> $crate::Result<$crate::Contents> {
                    $(if name == <$tool as $crate::Tool>::NAME {
                        return $crate::__private::call::<$tool>(arguments, context);
                    })+
                    ::std::result::Result::Err($crate::__private::unknown(name))
                }
            }

            $crate::__private::bindings::export_plugin!(Component with_types_in $crate::__private::bindings);
        };

        #[cfg(not(target_family = "wasm"))]
        const _: () = {
            const fn is_tool<T: $crate::Tool>() {}
            $(is_tool::<$tool>();)+
        };

        #[cfg(test)]
        #[test]
        fn exported_tools_are_well_formed() -> ::std::result::Result<(), ::std::string::String> {
            $crate::__private::check(&[$($crate::__private::define::<$tool>()),+])
        }
    };
}

/// Declares what the plugin wants from an operator: `requests!("../requests.toml")`, a path relative to the source file.
///
/// The file travels in the custom section `honeycomb:requests` of the plugin, so that a host can read it without running code. It
/// grants nothing: a plugin may do what the operator's policy *and* its requests allow. All of it is optional, and a field that the
/// host does not know is refused.
///
/// ```toml
/// version = 1
///
/// [[net]]                        # requests over HTTP
/// host = "api.open-meteo.com"    # exact, or `*.x` for the subdomains of x
/// scheme = "https"               # the default
/// methods = ["GET"]              # the default
/// path = "/v1/"                  # a prefix in whole segments; the default is everything
/// reason = "reads the forecast"  # what the operator is told
///
/// [[net]]
/// config = "base_url"            # the host of the URL in that configuration value
/// reason = "a server of your own"
///
/// [[fs]]
/// guest = "/"                    # covers every mount at or below it
/// mode = "ro"                    # ro | rw
/// reason = "reads the files that you mount"
///
/// [kv]
/// quota = "1MiB"
/// reason = "keeps notes"
///
/// [[config]]
/// key = "base_url"
/// required = false
/// default = "https://api.open-meteo.com"
/// reason = "where the forecast comes from"
///
/// [[env]]
/// name = "LANG"
/// reason = "the language of messages"
///
/// [[secrets]]                    # the host adds the header; the plugin never sees it
/// header = "authorization"
/// host = "api.github.com"
/// reason = "private repositories"
///
/// [limits]                       # what a call needs at most, in the policy's words; a host never gives more than the policy
/// timeout = "10s"
/// ```
#[macro_export]
macro_rules! requests {
    ($path:literal) => {
        const _: () = {
            #[cfg_attr(target_family = "wasm", unsafe(link_section = "honeycomb:requests"))]
            #[cfg_attr(target_family = "wasm", used)]
            #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "only a plugin carries it"))]
            static REQUESTS: [u8; include_bytes!($path).len()] = *include_bytes!($path);
        };
    };
}

#[cfg(test)]
mod tests {
    use crate::prelude::*;

    /// Says hello.
    #[derive(Deserialize, JsonSchema)]
    struct Hello {}

    impl Tool for Hello {
        const NAME: &'static str = "hello";
        type Output = String;

        fn call(self, _: &Context) -> Result<String> {
            Ok("你好".to_owned())
        }
    }

    crate::export!(Hello);
    crate::requests!("../Cargo.toml");

    #[test]
    fn an_exported_tool_is_still_a_plain_struct() {
        assert_eq!(Hello {}.call(&Context::test()).expect("says hello"), "你好");
    }
}
