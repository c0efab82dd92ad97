// Package store holds the domain: tenants, devices, rooms, participants,
// credentials and history; their state machines; and the small role interfaces
// through which the rest of the relay reads and writes them.
//
// It knows no SQL and no HTTP. store/postgres implements the interfaces,
// store/storetest is the suite every implementation passes.
package store
