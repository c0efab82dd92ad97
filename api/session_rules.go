package api

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
)

// listRules serves what the owner has set; a right about which nothing is set is given.
func (a *API) listRules(r *http.Request) (int, any, error) {
	if _, err := readQuery(r); err != nil {
		return 0, nil, err
	}
	s, err := a.beginSession(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	set, err := a.cfg.Store.RoomRules(s.ctx, s.tenant, s.room)
	if err != nil {
		return 0, nil, err
	}
	answer := Rules{Rules: make([]RuleRow, 0, len(set))}
	for _, setting := range set {
		answer.Rules = append(answer.Rules, ruleRow(setting))
	}
	return http.StatusOK, answer, nil
}

// setRule may be repeated.
func (a *API) setRule(r *http.Request) (int, any, error) {
	s, err := a.beginSession(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	if err := s.ownerOrOperator(); err != nil {
		return 0, nil, err
	}
	var body NewRule
	if err := decodeNoNull(r, &body); err != nil {
		return 0, nil, err
	}
	setting := store.RuleSetting{Tenant: s.tenant, Room: s.room, Rule: store.Rule(body.Rule)}
	if setting.Rule != store.RuleMessageSend && setting.Rule != store.RuleAlertEmit {
		return 0, nil, malformed("rule must be message.send or session.alert.emit")
	}
	if body.Allowed == nil {
		return 0, nil, malformed("allowed must be true or false")
	}
	setting.Allowed = *body.Allowed
	if body.ParticipantID != nil {
		if setting.Participant, err = bodyID(*body.ParticipantID, "participant_id"); err != nil {
			return 0, nil, err
		}
		if setting.Participant == uuid.Nil {
			return 0, nil, store.ErrNotFound // it stands for everybody
		}
	}
	leave, err := s.enter()
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	if err := a.cfg.Store.SetRule(s.ctx, setting); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, ruleRow(setting), nil
}

func ruleRow(setting store.RuleSetting) RuleRow {
	row := RuleRow{Rule: string(setting.Rule), Allowed: setting.Allowed}
	if setting.Participant != uuid.Nil {
		row.ParticipantID = setting.Participant.String()
	}
	return row
}
