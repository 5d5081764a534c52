//! Humans: the forms that register one and set a role (H7).

use serde::{Deserialize, Serialize};

use lastword_facts::fact::{Kind, Role};

use crate::NewAgent;

/// Sets the role of a human; `PATCH /v1/humans/{name}` (H7).
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HumanPatch {
    /// `owner`, `operator`, `approver` or `viewer`.
    pub role: Role,
}

/// Registers a human; `POST /v1/humans` (H7).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewHuman {
    /// The name, unique among live agents and humans.
    pub name: String,
    /// `owner`, `operator`, `approver` or `viewer`.
    pub role: Role,
}

impl From<NewHuman> for NewAgent {
    fn from(new: NewHuman) -> Self {
        Self {
            name: new.name,
            actions: Vec::new(),
            groups: Vec::new(),
            kind: Kind::Human,
            turns_max: 0,
            role: Some(new.role),
            display_name: None,
            key: None,
        }
    }
}

/// The provider by which humans sign in; `GET /v1/sign-in`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SignInProvider {
    /// The issuer, below which the provider describes itself (OpenID Connect Discovery).
    pub issuer: String,
    /// The public client that is registered for the command line.
    pub client_id: String,
}

/// Signs a human in; `POST /v1/sign-in`.
#[derive(Clone, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IdToken {
    /// The provider's ID token for the client that `GET /v1/sign-in` names. Each signs in once.
    pub id_token: String,
}

/// A human who has signed in. The token is shown only once.
#[derive(Clone, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SignedIn {
    /// The human's name.
    pub name: String,
    /// The human's role.
    pub role: Role,
    /// The bearer token, for the header `Authorization`.
    pub token: String,
    /// When it expires, RFC 3339 in UTC.
    pub expires_at: String,
}

/// A link that signs a human in to the console, once. It is shown only once.
#[derive(Clone, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SignInLink {
    /// The path and the code, `/sign-in#CODE`: to be opened at the console's address.
    pub path: String,
    /// When it expires, RFC 3339 in UTC.
    pub expires_at: String,
}
