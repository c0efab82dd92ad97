package postgres_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/blake2b"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/store/storetest"
)

// mlsTables are those of MLS, in the order in which rows can be inserted.
var mlsTables = []string{"mls_group_ids", "mls_commits", "mls_welcomes", "mls_commit_reports", "key_packages"}

// mlsRow inserts a row of the member's into one of mlsTables.
func mlsRow(table string, member store.Participant) string {
	return strings.NewReplacer("TENANT", member.Tenant.String(), "ROOM", member.Room.String(),
		"MEMBER", member.ID.String(), "DEVICE", member.Device.String()).Replace(map[string]string{
		"mls_group_ids":      "INSERT INTO mls_group_ids (tenant_id, room_id, group_id) VALUES ('TENANT', 'ROOM', 'x')",
		"mls_commits":        "INSERT INTO mls_commits (tenant_id, room_id, epoch, sender_id, content) VALUES ('TENANT', 'ROOM', 1, 'MEMBER', 'x')",
		"mls_welcomes":       "INSERT INTO mls_welcomes (tenant_id, room_id, epoch, content) VALUES ('TENANT', 'ROOM', 1, 'x')",
		"mls_commit_reports": "INSERT INTO mls_commit_reports (tenant_id, room_id, epoch, participant_id) VALUES ('TENANT', 'ROOM', 1, 'MEMBER')",
		"key_packages": `INSERT INTO key_packages (tenant_id, device_id, ref, content, last_resort, expires_at)
			VALUES ('TENANT', 'DEVICE', sha256('x'), 'x', false, now() + interval '1 hour')`,
	}[table])
}

// FAULTS BL-I01, against one and two nodes.
func TestCommitsOfTwoNodesAreOrdered(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	here, there := pgtest.Open(t, url, mls), pgtest.Open(t, url, mls)
	storetest.TestCommitRace(t, subject(here, newOwner(url)), there)
}

// mlsRoom is an MLS room with a group of its owner, in a database of its own.
type mlsRoom struct {
	s            *postgres.Store
	db           *owner
	tenant, room uuid.UUID
	owner        store.Participant
	epoch        uint64
}

func newMLSRoom(t *testing.T) *mlsRoom {
	t.Helper()
	url := pgtest.URL(t)
	r := &mlsRoom{s: pgtest.Open(t, url, mls), db: newOwner(url)}
	r.tenant = subject(r.s, r.db).NewTenant(t)
	room, err := r.s.CreateRoom(t.Context(), store.NewRoom{
		Tenant: r.tenant, Kind: store.RoomGroup, Scheme: store.SchemeMLS, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	r.room = room.ID
	r.owner = r.member(t, store.RoleOwner)
	r.commit(t)
	return r
}

func (r *mlsRoom) member(t *testing.T, role store.Role) store.Participant {
	t.Helper()
	p, err := r.s.AddParticipant(t.Context(), store.NewParticipant{Tenant: r.tenant, Room: r.room, Role: role})
	require.NoError(t, err)
	return p
}

// commit is accepted, by the owner; it adds these.
func (r *mlsRoom) commit(t *testing.T, added ...store.Participant) {
	t.Helper()
	c := store.NewCommit{
		Tenant: r.tenant, Room: r.room, By: r.owner.Device, Epoch: r.epoch, GroupEpoch: r.epoch, GroupID: []byte("group"),
		Commit: fmt.Append(nil, "commit of ", r.epoch), GroupInfo: []byte("info"),
	}
	for _, p := range added {
		c.Added, c.Welcome = append(c.Added, p.ID), []byte("welcome")
	}
	epoch, err := r.s.AcceptCommit(t.Context(), c)
	require.NoError(t, err)
	r.epoch = epoch
}

func (r *mlsRoom) count(t *testing.T, table string) int {
	t.Helper()
	return query[int](t, r.db, "SELECT count(*) FROM "+table)
}

// Only the newest commits of a room are kept, with the reports of them; who is further
// behind is told.
func TestCommitsAreKeptForATime(t *testing.T) {
	t.Parallel()
	r := newMLSRoom(t)
	require.NoError(t, r.s.ReportCommit(t.Context(), r.tenant, r.room, r.owner.Device, 1))
	r.db.exec(t, `INSERT INTO mls_commits (tenant_id, room_id, epoch, sender_id, content)
		SELECT $1, $2, n, $3, 'x' FROM generate_series(2, $4) n`, r.tenant, r.room, r.owner.ID, store.KeptCommits)
	r.db.exec(t, "UPDATE mls_groups SET epoch = $1", store.KeptCommits)
	r.epoch = store.KeptCommits
	require.Equal(t, store.KeptCommits, r.count(t, "mls_commits"))
	page := func(after uint64) ([]store.Commit, error) {
		commits, _, err := r.s.CommitPage(t.Context(), r.tenant, r.room, r.owner.Device, after, 1)
		return commits, err
	}
	commits, err := page(0)
	require.NoError(t, err)
	require.Equal(t, uint64(1), commits[0].Epoch)

	r.commit(t)
	require.Equal(t, store.KeptCommits, r.count(t, "mls_commits"))
	require.Zero(t, r.count(t, "mls_commit_reports"))
	_, err = page(0)
	var gone *store.EpochError
	require.ErrorAs(t, err, &gone)
	require.Equal(t, uint64(store.KeptCommits+1), gone.Current)
	commits, err = page(1)
	require.NoError(t, err)
	require.Equal(t, uint64(2), commits[0].Epoch)
	require.ErrorIs(t, r.s.ReportCommit(t.Context(), r.tenant, r.room, r.owner.Device, 1), store.ErrNotFound)
	require.NoError(t, r.s.ReportCommit(t.Context(), r.tenant, r.room, r.owner.Device, 2))
}

// Only the newest ids of groups are kept, in each room. Those of before it was noted when a
// group began are the oldest.
func TestGroupIDsAreBounded(t *testing.T) {
	t.Parallel()
	r := newMLSRoom(t)
	other, err := r.s.CreateRoom(t.Context(), store.NewRoom{
		Tenant: r.tenant, Kind: store.RoomGroup, Scheme: store.SchemeMLS, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	for _, room := range []uuid.UUID{r.room, other.ID} {
		r.db.exec(t, "INSERT INTO mls_group_ids (tenant_id, room_id, group_id) VALUES ($1, $2, 'of before')", r.tenant, room)
		r.db.exec(t, `INSERT INTO mls_group_ids (tenant_id, room_id, group_id, began)
			SELECT $1, $2, n::text::bytea, n FROM generate_series(1, $3) n`, r.tenant, room, store.KeptGroupIDs-2)
	}
	ids := func(room uuid.UUID, where string) int {
		return query[int](t, r.db, "SELECT count(*) FROM mls_group_ids WHERE room_id = $1 AND "+where, room)
	}
	require.Equal(t, store.KeptGroupIDs, ids(r.room, "true"))
	began := store.KeptGroupIDs
	r.db.exec(t, "UPDATE mls_groups SET epoch = $1, base = $1, group_id = NULL, group_info = NULL", began)
	begin := func(id string) error {
		_, err := r.s.AcceptCommit(t.Context(), store.NewCommit{
			Tenant: r.tenant, Room: r.room, By: r.owner.Device, Epoch: uint64(began), GroupID: []byte(id),
			Commit: []byte("commit"), GroupInfo: []byte("info"),
		})
		return err
	}
	require.ErrorIs(t, begin("group"), store.ErrConflict, "the room had it")
	require.ErrorIs(t, begin("1"), store.ErrConflict, "and that one")
	require.NoError(t, begin("another"))
	require.Equal(t, store.KeptGroupIDs, ids(r.room, "true"))
	require.Zero(t, ids(r.room, "group_id = 'of before'"))
	require.Equal(t, 1, ids(r.room, "group_id = 'group'"))
	require.Equal(t, 1, ids(r.room, fmt.Sprintf("group_id = 'another' AND began = %d", began)))
	require.Equal(t, store.KeptGroupIDs-1, ids(other.ID, "true"), "of another room nothing is deleted")
}

// A welcome is stored once for all whom it adds, and goes when the last of them does not
// need it.
func TestWelcomesAreStoredOnce(t *testing.T) {
	t.Parallel()
	r := newMLSRoom(t)
	a, b := r.member(t, store.RoleAgent), r.member(t, store.RoleAgent)
	r.commit(t, a, b)
	require.Equal(t, 1, r.count(t, "mls_welcomes"))
	leave := func(p store.Participant) {
		t.Helper()
		_, err := r.s.RemoveParticipant(t.Context(), r.tenant, r.room, p.ID, uuid.Nil)
		require.NoError(t, err)
		r.commit(t)
	}
	leave(a)
	require.Equal(t, 1, r.count(t, "mls_welcomes"))
	leave(b)
	require.Zero(t, r.count(t, "mls_welcomes"))
	r.commit(t, r.member(t, store.RoleAgent))
	_, err := r.s.ResetRoom(t.Context(), r.tenant, r.room, uuid.Nil)
	require.NoError(t, err)
	require.Zero(t, r.count(t, "mls_welcomes"))
}

// upload adds n new packages of p.
func (r *mlsRoom) upload(t *testing.T, p store.Participant, n int) {
	t.Helper()
	packages := make([]store.KeyPackage, n)
	for i := range packages {
		content := make([]byte, 32)
		_, _ = rand.Read(content) // never fails
		packages[i] = store.KeyPackage{Ref: blake2b.Sum256(content), Bytes: content, ExpiresAt: time.Now().Add(time.Hour)}
	}
	_, err := r.s.AddKeyPackages(t.Context(), r.tenant, p.Device, packages)
	require.NoError(t, err)
}

func (r *mlsRoom) claim(t *testing.T, p store.Participant) error {
	t.Helper()
	_, err := r.s.ClaimKeyPackages(t.Context(), r.tenant, r.room, r.owner.Device, []uuid.UUID{p.ID})
	return err
}

func (r *mlsRoom) low(t *testing.T) int {
	t.Helper()
	return query[int](t, r.db, "SELECT count(*) FROM outbox WHERE encode(payload, 'escape') LIKE '%key_packages_low%'")
}

// What is expired is not handed out, and goes; that a stock shrank by its age is told once.
func TestKeyPackagesExpire(t *testing.T) {
	t.Parallel()
	r := newMLSRoom(t)
	agent := r.member(t, store.RoleAgent)
	expire := func(n int) {
		t.Helper()
		r.db.exec(t, `UPDATE key_packages SET expires_at = now() WHERE ref IN (
			SELECT ref FROM key_packages WHERE content IS NOT NULL ORDER BY expires_at LIMIT $1)`, n)
	}
	available := func() int {
		t.Helper()
		stock, err := r.s.KeyPackageStock(t.Context(), r.tenant, agent.Device)
		require.NoError(t, err)
		return stock.Available
	}
	r.upload(t, agent, 20)
	expire(8)
	require.Equal(t, 12, available())
	require.NoError(t, r.claim(t, agent))
	require.Zero(t, r.low(t))
	require.Equal(t, 12, r.count(t, "key_packages"), "one of which was handed out")
	expire(5)
	require.NoError(t, r.claim(t, agent))
	require.Equal(t, 1, r.low(t), "from 11 to 5")
	expire(5)
	require.Zero(t, available())
	require.ErrorIs(t, r.claim(t, agent), store.ErrConflict)
	require.Equal(t, 1, r.low(t), "nothing was handed out")

	r.upload(t, agent, 1)
	require.Equal(t, 3, r.count(t, "key_packages"), "with the two that were handed out, and are not expired")
	r.db.exec(t, "UPDATE key_packages SET last_resort = true WHERE content IS NOT NULL")
	r.upload(t, agent, 1)
	expire(0)
	r.db.exec(t, "UPDATE key_packages SET expires_at = now() WHERE NOT last_resort")
	require.NoError(t, r.claim(t, agent))
	require.Equal(t, 2, r.low(t), "the last resort is handed out since the rest is expired")
	require.NoError(t, r.claim(t, agent))
	require.Equal(t, 2, r.low(t), "which was told")
}

// Packages that are handed out are forgotten when there are very many of them, without
// their bytes from the start.
func TestSpentKeyPackagesAreBounded(t *testing.T) {
	t.Parallel()
	r := newMLSRoom(t)
	agent := r.member(t, store.RoleAgent)
	r.upload(t, agent, 2)
	require.NoError(t, r.claim(t, agent))
	require.Equal(t, 1, query[int](t, r.db, "SELECT count(*) FROM key_packages WHERE content IS NULL"))
	r.db.exec(t, `INSERT INTO key_packages (tenant_id, device_id, ref, content, last_resort, expires_at)
		SELECT $1, $2, sha256(n::text::bytea), NULL, false, now() + interval '2 hours' FROM generate_series(1, 999) n`, r.tenant, agent.Device)
	r.upload(t, agent, 1)
	require.Equal(t, 1002, r.count(t, "key_packages"), "1,000 of them")
	r.db.exec(t, `INSERT INTO key_packages (tenant_id, device_id, ref, content, last_resort, expires_at)
		VALUES ($1, $2, sha256('one more'), NULL, false, now() + interval '2 hours')`, r.tenant, agent.Device)
	r.upload(t, agent, 1)
	require.Equal(t, 1003, r.count(t, "key_packages"))
	require.Equal(t, 3, query[int](t, r.db, "SELECT count(*) FROM key_packages WHERE expires_at < now() + interval '90 minutes'"),
		"the one that expires first was forgotten")
}

// STATE, "RLS Enforcement": asked directly, the tables of MLS let nobody through.
func TestMLSPolicies(t *testing.T) {
	t.Parallel()
	r := newMLSRoom(t)
	agent, viewer := r.member(t, store.RoleAgent), r.member(t, store.RoleViewer)
	r.commit(t, agent)
	require.NoError(t, r.s.ReportCommit(t.Context(), r.tenant, r.room, agent.Device, 2))
	r.upload(t, agent, 3)
	stranger := subject(r.s, r.db).NewTenant(t)
	tables := append([]string{"mls_groups"}, mlsTables...)
	service := newOwner(pgtest.As(t, r.db.url, schema.ServiceRole)).connect(t)
	counts := func(settings map[string]string) map[string]int {
		found := map[string]int{}
		inTransaction(t, service, settings, func(tx pgx.Tx) {
			for _, table := range tables {
				var may bool
				require.NoError(t, tx.QueryRow(t.Context(), "SELECT has_table_privilege($1, 'SELECT')", table).Scan(&may))
				if !may {
					continue
				}
				var n int
				require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
				if n > 0 {
					found[table] = n
				}
			}
		})
		return found
	}
	acting := func(tenant uuid.UUID) map[string]string {
		return map[string]string{"relay.tenant": tenant.String(), "relay.actor": "service"}
	}
	all := map[string]int{"mls_groups": 1, "mls_group_ids": 1, "mls_commits": 2, "mls_welcomes": 1, "mls_commit_reports": 1, "key_packages": 3}
	require.Equal(t, all, counts(acting(r.tenant)))
	require.Empty(t, counts(acting(stranger)), "another tenant")
	require.Empty(t, counts(map[string]string{"relay.actor": "maintenance"}))
	require.Equal(t, map[string]int{"mls_groups": 1, "mls_commits": 2, "mls_welcomes": 1, "mls_commit_reports": 1, "key_packages": 3},
		counts(asDevice(r.tenant, agent.Device)))
	require.Equal(t, map[string]int{"mls_groups": 1, "mls_commits": 2, "mls_commit_reports": 1}, counts(asDevice(r.tenant, viewer.Device)),
		"neither a welcome nor packages of somebody else")
	require.Empty(t, counts(asDevice(stranger, agent.Device)))

	for name, statement := range map[string]string{
		"a commit of a viewer": mlsRow("mls_commits", viewer),
		"a commit of nobody":   mlsRow("mls_commits", store.Participant{Tenant: r.tenant, Room: r.room}),
	} {
		inTransaction(t, service, acting(r.tenant), func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), strings.Replace(statement, ", 1, ", ", 9, ", 1))
			require.ErrorContains(t, err, "row-level security", name)
		})
	}
	for _, statement := range []string{
		"UPDATE mls_commits SET content = 'x'", "UPDATE mls_welcomes SET content = 'x'", "UPDATE key_packages SET ref = ref",
		"UPDATE mls_group_ids SET began = began", "DELETE FROM mls_groups", "DELETE FROM mls_commit_reports",
	} {
		inTransaction(t, service, acting(r.tenant), func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), statement)
			require.ErrorContains(t, err, "permission denied", statement)
		})
	}
	_, err := r.s.RemoveParticipant(t.Context(), r.tenant, r.room, agent.ID, uuid.Nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"key_packages": 3}, counts(asDevice(r.tenant, agent.Device)), "a former member")
}
