// Package api is the HTTP API of the relay (DESIGN section 9).
//
// This version has the operator's endpoints. They are served twice, by the same
// handlers: on the unix socket <data>/relay.sock, where being able to open the file
// is the right to use them, and on the public listener, where each request carries
// the operator token as Authorization: Bearer.
//
//	POST   /v1/rooms                                  make a room
//	GET    /v1/rooms/{id}                             one room
//	POST   /v1/rooms/{id}/members                     add a participant, with a first credential
//	DELETE /v1/rooms/{id}/members/{participant_id}    remove one
//	POST   /v1/rooms/{id}/credentials                 mint a credential
//	GET    /v1/sessions/{id}/participants             who is in a room
//	POST   /v1/participants/{id}/credentials          mint a credential, the room not being named
//	DELETE /v1/participants/{id}/credentials          revoke all of a participant's credentials
//	GET    /v1/participants/{id}/inbox                what waits in an inbox, and where
//	DELETE /v1/credentials/{id}                       revoke one credential
//	GET    /v1/freeze                                 is the network frozen
//	PUT    /v1/freeze                                 freeze or thaw it
//	GET    /v1/status                                 this process, and each part of it
//	GET    /healthz, /readyz                          without a token
//
// A change that takes something away is answered after every live node has put it in
// force (DESIGN section 6, "Freshness"). Errors are {"error": code, "detail": text}
// with the status of wire.Codes.
package api
