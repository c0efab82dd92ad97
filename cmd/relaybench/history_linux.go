package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/peerrelay/peerrelay/infra/pgd"
)

type historyCommand struct {
	settings
	Readers int `default:"16" help:"Pages that are asked for at once."`
	Rooms   int `default:"64" help:"Rooms."`
	Rows    int `default:"500" help:"Messages in each room's history."`
	Limit   int `default:"100" help:"Messages of a page."`
}

// Help is kong's long text of the command.
func (*historyCommand) Help() string {
	return `Members of rooms read their rooms' history through the API, page by page from the oldest message to the newest. The floor is
the SELECT of the same pages, on direct connections to the same database. Example: relaybench history --limit 500`
}

// historyMembers are the participants of each room: one sends, both read.
const historyMembers = 2

// Run measures.
func (c *historyCommand) Run(ctx context.Context, con console) error {
	if c.Readers < 1 || c.Rooms < 1 || c.Limit < 1 || c.Limit > 500 || c.Rows < 2*c.Limit {
		return usageError{"--readers and --rooms are positive, --limit is 1 to 500, --rows at least twice that"}
	}
	b, err := newBench(c.settings, con)
	if err != nil {
		return err
	}
	defer b.close()
	if _, err := b.start(ctx); err != nil {
		return err
	}
	rooms, err := b.rooms(ctx, c.Rooms, historyMembers)
	if err != nil {
		return err
	}
	if _, err := b.fill(ctx, rooms, 0, c.Rows); err != nil {
		return err
	}
	floor, err := c.openFloor(ctx, b, rooms)
	if err != nil {
		return err
	}
	defer floor.close()
	return b.repeat("history", "pages/s", nil, func() (sample, error) { return c.once(ctx, b, rooms, floor) })
}

func (c *historyCommand) once(ctx context.Context, b *bench, rooms [][]member, floor *historyFloor) (sample, error) {
	direct, err := b.inParallel(ctx, c.Readers, c.Time/4, c.Time, floor.page, nil, nil)
	if err != nil {
		return sample{}, fmt.Errorf("measure the floor: %w", err)
	}
	all := newCallers(b.relay.listen, c.Readers)
	defer all.close()
	readers := make([]historyReader, c.Readers)
	for i := range readers {
		readers[i] = historyReader{caller: all[i], rooms: rooms, limit: c.Limit}
	}
	profiled := func() error { return nil }
	paged, err := b.inParallel(ctx, c.Readers, c.Time/4, c.Time,
		func(ctx context.Context, worker int) error { return readers[worker].page(ctx) },
		func() { profiled = b.profile(ctx) }, nil)
	if err != nil {
		return sample{}, err
	}
	if err := profiled(); err != nil {
		return sample{}, err
	}
	more := paged.more("page")
	for name, value := range direct.more("page") {
		more["floor_"+name] = value
	}
	more["messages_per_s"] = paged.perSecond * float64(c.Limit)
	b.say("%.0f pages/s; floor %.0f", paged.perSecond, direct.perSecond)
	return newSample(paged.perSecond, direct.perSecond, more), nil
}

// historyReader follows one room after the other.
type historyReader struct {
	caller *caller
	rooms  [][]member
	limit  int
	who    member
	cursor string // empty: at the end of the room
}

func (r *historyReader) page(ctx context.Context) error {
	if r.cursor == "" {
		room := r.rooms[rand.IntN(len(r.rooms))]
		r.who = room[rand.IntN(len(room))]
	}
	query := url.Values{"limit": {strconv.Itoa(r.limit)}}
	if r.cursor != "" {
		query.Set("cursor", r.cursor)
	}
	// Not decoded: that would measure the generator.
	if err := r.caller.call(ctx, http.MethodGet, "/v1/sessions/"+r.who.room+"/history?"+query.Encode(), r.who.token, nil, nil); err != nil {
		return err
	}
	body := r.caller.body.Bytes()
	r.cursor = nextCursor(body)
	if rows := bytes.Count(body, []byte(`"message_id":`)); r.cursor != "" && rows != r.limit {
		return fmt.Errorf("a page has %d messages instead of %d", rows, r.limit)
	}
	return nil
}

// nextCursor reads the member that stands at the end of a page, empty when there is none.
func nextCursor(body []byte) string {
	at := bytes.LastIndex(body, []byte(`"next_cursor":"`))
	if at < 0 {
		return ""
	}
	cursor, _, _ := bytes.Cut(body[at+len(`"next_cursor":"`):], []byte(`"`))
	return string(cursor)
}

// historyFloor are direct connections to the relay's database, one for each reader, as
// the role that no policy applies to.
type historyFloor struct {
	conns []*pgx.Conn
	rooms []string
	rows  int // of each room
	limit int
	at    []place // by connection
}

// place is where a reader stands.
type place struct {
	room  string
	after int64 // position of the last row read
	left  int   // rows; 0: another room is next
}

func (c *historyCommand) openFloor(ctx context.Context, b *bench, rooms [][]member) (_ *historyFloor, err error) {
	f := &historyFloor{rows: c.Rows, limit: c.Limit, at: make([]place, c.Readers)}
	for _, room := range rooms {
		f.rooms = append(f.rooms, room[0].room)
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	for range c.Readers {
		conn, err := pgx.Connect(ctx, b.relay.databaseURL())
		if err != nil {
			return nil, fmt.Errorf("connect to the relay's database: %w", err)
		}
		f.conns = append(f.conns, conn)
	}
	return f, nil
}

// databaseURL is where the relay's PostgreSQL is.
func (r *relay) databaseURL() string {
	query := url.Values{"host": {filepath.Join(r.data, "postgres", "run")}, "port": {"5432"}, "sslmode": {"disable"}}
	managed := url.URL{Scheme: "postgres", User: url.User(pgd.OwnerRole), Path: "/" + pgd.Database, RawQuery: query.Encode()}
	return flagValue(r.flags, "--database-url", managed.String())
}

const historyPage = `SELECT position, message_id, sender_id, kind, gen, kid, envelope, received_at FROM session_history
WHERE tenant_id = (SELECT tenant_id FROM rooms WHERE id = $1) AND room_id = $1 AND position > $2 ORDER BY position LIMIT $3`

func (f *historyFloor) page(ctx context.Context, worker int) error {
	at := &f.at[worker]
	if at.left <= 0 {
		*at = place{room: f.rooms[rand.IntN(len(f.rooms))], left: f.rows}
	}
	rows, err := f.conns[worker].Query(ctx, historyPage, at.room, at.after, f.limit)
	if err != nil {
		return err
	}
	defer rows.Close()
	wanted, read := min(f.limit, at.left), 0
	for rows.Next() {
		if read++; read == wanted {
			if err := rows.Scan(&at.after, nil, nil, nil, nil, nil, nil, nil); err != nil {
				return err
			}
		}
	}
	if at.left -= wanted; read != wanted && rows.Err() == nil {
		return fmt.Errorf("a page has %d rows instead of %d", read, wanted)
	}
	return rows.Err()
}

func (f *historyFloor) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, conn := range f.conns {
		_ = conn.Close(ctx)
	}
}
