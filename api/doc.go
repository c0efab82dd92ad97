// Package api is the HTTP API of the relay (DESIGN section 9).
//
// Each endpoint is a route: method, path, who may call it, its handler, and all that
// the reference says of it. From the same list come what is served, the OpenAPI
// document at /openapi.json, the page at /docs, the labels of the metrics and the table
// in docs/api.md, so none of them can differ from another.
//
// The endpoints are served twice, by the same handlers: on the unix socket
// <data>/relay.sock, where being able to open the file is the right to use them, and on
// the public listener, where each request carries a token as Authorization: Bearer and
// is bound by Limits. A node without a database serves HealthOnly.
//
// A change that takes something away is answered after every live node has put it in
// force (DESIGN section 6, "Freshness"). Errors are {"error": code, "detail": text}
// with the status of wire.Codes.
package api
