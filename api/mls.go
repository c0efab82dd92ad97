package api

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/mls"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// Bounds of requests: the largest messages in base64, and the rest.
const (
	maxKeyPackagesBody = store.MaxKeyPackagesAdded*(store.MaxKeyPackage*4/3+256) + 1<<10
	maxCommitBody      = (store.MaxCommit+store.MaxGroupInfo+store.MaxWelcome)*4/3 + 64<<10

	maxRemovals = store.MaxParticipants // of one commit
)

// forGroups is the way in to the endpoints of MLS rooms: none of them is for the operator,
// who is in no group, and all are closed where MLS is switched off.
func (a *API) forGroups(next handler) handler {
	return func(r *http.Request) (int, any, error) {
		if !a.cfg.MLS {
			return 0, nil, &wire.Error{Code: wire.MLSSchemeDisabled, Detail: "this relay runs without MLS rooms"}
		}
		if callerOf(r.Context()).operator {
			return 0, nil, &wire.Error{Code: wire.Forbidden, Detail: "only a device may do this, with its access token: the operator is in no group"}
		}
		return next(r)
	}
}

// acceptCommit checks what the server can tell of a commit, and stores it: the first of an
// epoch that reaches the store is applied (STATE, "Simultaneous Admin Changes"). The same
// request again, by the same sender, is answered with the epoch it made.
func (a *API) acceptCommit(r *http.Request) (int, any, error) {
	room, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	device := callerOf(r.Context()).device.ID
	done, err := a.senders.begin(device) // bodies are large
	if err != nil {
		return 0, nil, err
	}
	defer done()
	var body NewCommit
	if err := decodeNoNull(r, &body); err != nil {
		return 0, nil, err
	}
	commit := store.NewCommit{Room: room, By: device}
	if err := body.read(&commit); err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	commit.Tenant = op.tenant
	change := cluster.Change{Room: room} // nodes cache the room's state
	epoch, err := a.cfg.Store.AcceptCommit(op.ctx, commit)
	if err != nil {
		return 0, nil, op.inDoubt(change, commitRefusal(err))
	}
	if err := op.announce(change); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, AcceptedCommit{Epoch: epoch}, nil
}

// read checks that commit, group info and welcome belong together.
func (n *NewCommit) read(into *store.NewCommit) error {
	if n.Epoch == nil || *n.Epoch > wire.MaxInteger {
		return malformed("epoch must be that of the room the commit was made in")
	}
	into.Epoch = *n.Epoch
	if err := n.readMessages(into); err != nil {
		return err
	}
	var err error
	if into.Added, err = bodyIDs(n.Added, "added", store.MaxCommitAdds); err != nil {
		return err
	}
	if into.Removed, err = bodyIDs(n.Removed, "removed", maxRemovals); err != nil {
		return err
	}
	if (len(into.Added) > 0) != (into.Welcome != nil) {
		return malformed("welcome and added go together")
	}
	return nil
}

func (n *NewCommit) readMessages(into *store.NewCommit) error {
	var message, info mls.Message
	var err error
	if into.Commit, message, err = readMLS(n.Commit, "commit", store.MaxCommit); err != nil {
		return err
	}
	if !message.ByMember() && !message.Joins() {
		return malformed("commit must be a PublicMessage or a PrivateMessage with a commit, of a member or of somebody who joins by it")
	}
	if len(message.GroupID) == 0 || len(message.GroupID) > store.MaxGroupID || message.Epoch >= wire.MaxInteger {
		return malformed("the group id of commit must be 1 to 255 bytes, and its epoch less than 2^53-1")
	}
	if into.GroupInfo, info, err = readMLS(n.GroupInfo, "group_info", store.MaxGroupInfo); err != nil {
		return err
	}
	if info.WireFormat != mls.GroupInfo || info.Epoch != message.Epoch+1 || !bytes.Equal(info.GroupID, message.GroupID) {
		return malformed("group_info must be a GroupInfo of the same group as commit, and of the epoch after it")
	}
	into.GroupID, into.GroupEpoch, into.External = message.GroupID, message.Epoch, message.Joins()
	if n.Welcome == "" {
		return nil
	}
	if into.Welcome, message, err = readMLS(n.Welcome, "welcome", store.MaxWelcome); err != nil {
		return err
	}
	if message.WireFormat != mls.Welcome {
		return malformed("welcome must be an MLSMessage with a Welcome")
	}
	return nil
}

// readMLS reads one MLSMessage.
func readMLS(text, member string, most int) (data []byte, message mls.Message, err error) {
	if data, err = sealed(text, member, most); err != nil {
		return nil, message, err
	}
	if message, err = mls.Parse(data); err != nil {
		return nil, message, malformed(member + " is no MLSMessage: " + err.Error())
	}
	return data, message, nil
}

// commitRefusal says what the caller can do about it. In which epoch the room is says
// refusalOf.
func commitRefusal(err error) error {
	if _, late := errors.AsType[*store.EpochError](err); late {
		return err
	}
	switch {
	case errors.Is(err, store.ErrForbidden):
		return &wire.Error{Code: wire.Forbidden, Detail: "viewers do not commit, nor does who is not in the group, unless it joins by the commit"}
	case errors.Is(err, store.ErrNotFound):
		return &wire.Error{Code: wire.NotFound, Detail: "there is no such room, one of added is not in it, or one of removed never was"}
	case errors.Is(err, store.ErrInvalid):
		return malformed("nobody may be named twice in added or in removed, and no committer names itself, but to join anew by an external commit")
	case errors.Is(err, store.ErrConflict):
		return &wire.Error{Code: wire.Conflict, Detail: "the room has another scheme, the commit is of another group or of an epoch that does not " +
			"follow from the room's, or one of added is in the group already: fetch group-info"}
	}
	return err
}

// groupRefusal is for everything but commits.
func groupRefusal(err error) error {
	_, late := errors.AsType[*store.EpochError](err)
	switch {
	case late:
		return err
	case errors.Is(err, store.ErrForbidden):
		return &wire.Error{Code: wire.Forbidden, Detail: "viewers, and devices that are not ACTIVE, may not do this"}
	case errors.Is(err, store.ErrConflict):
		return &wire.Error{Code: wire.Conflict, Detail: "the room has another scheme"}
	}
	return err
}

func (a *API) listCommits(r *http.Request) (int, any, error) {
	query, err := readQuery(r, "after_epoch", "limit")
	if err != nil {
		return 0, nil, err
	}
	after, limit := int64(0), defaultRows
	if text, given := query["after_epoch"]; given {
		if after, err = plainNumber(text); err != nil {
			return 0, nil, malformed("after_epoch must be 0 or a positive whole number")
		}
	}
	if text, given := query["limit"]; given {
		if limit, err = readLimit(text); err != nil {
			return 0, nil, err
		}
	}
	room, op, err := a.beginByID(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	commits, more, err := a.cfg.Store.CommitPage(op.ctx, op.tenant, room, callerOf(r.Context()).device.ID, uint64(after), limit)
	if err != nil {
		return 0, nil, groupRefusal(err)
	}
	answer := Commits{Commits: make([]Commit, 0, len(commits)), More: more}
	for i := range commits {
		c := &commits[i]
		answer.Commits = append(answer.Commits, Commit{Epoch: c.Epoch, Sender: c.Sender.String(), Commit: c.Bytes, CreatedAt: c.At.UTC()})
	}
	return http.StatusOK, answer, nil
}

func (a *API) showGroupInfo(r *http.Request) (int, any, error) {
	room, op, err := a.beginByID(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	group, err := a.cfg.Store.Group(op.ctx, op.tenant, room, callerOf(r.Context()).device.ID)
	if err != nil {
		return 0, nil, groupRefusal(err)
	}
	return http.StatusOK, GroupInfo{
		Epoch: group.Epoch, BaseEpoch: group.Base, GroupID: group.ID, GroupInfo: group.Info,
		Members: idTexts(group.Members), PendingRemovals: idTexts(group.Pending),
	}, nil
}

func idTexts(ids []uuid.UUID) []string {
	texts := make([]string, 0, len(ids))
	for _, id := range ids {
		texts = append(texts, id.String())
	}
	return texts
}

func (a *API) showWelcome(r *http.Request) (int, any, error) {
	room, op, err := a.beginByID(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	welcome, err := a.cfg.Store.Welcome(op.ctx, op.tenant, room, callerOf(r.Context()).device.ID)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil, &wire.Error{Code: wire.NotFound, Detail: "there is no such room, or no welcome for this device in it"}
	}
	if err != nil {
		return 0, nil, groupRefusal(err)
	}
	return http.StatusOK, Welcome{Epoch: welcome.Epoch, Welcome: welcome.Bytes}, nil
}

// reportCommit tells the room that a member cannot apply a commit (STATE, "Corrupt State").
// What follows from that is for an owner to decide.
func (a *API) reportCommit(r *http.Request) (int, any, error) {
	epoch, err := plainNumber(r.PathValue("epoch"))
	if err != nil {
		return 0, nil, &wire.Error{Code: wire.NotFound, Detail: "the epoch in the address is not a number"}
	}
	room, op, err := a.beginByID(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	err = a.cfg.Store.ReportCommit(op.ctx, op.tenant, room, callerOf(r.Context()).device.ID, uint64(epoch))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil, &wire.Error{Code: wire.NotFound, Detail: "there is no such room, or no commit that made this epoch is kept"}
	}
	if err != nil {
		return 0, nil, groupRefusal(err)
	}
	a.wakeOutbox()
	return http.StatusOK, ReportedCommit{Epoch: uint64(epoch)}, nil
}
