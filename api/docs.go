package api

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"html/template"
	"maps"
	"slices"
	"strings"
)

//go:embed reference/page.html
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"prose": prose,
}).ParseFS(pageFiles, "reference/page.html"))

// pageData is what the page shows of the document.
type pageData struct {
	Title, Version, Introduction string
	Groups                       []pageGroup
	Types                        []pageType
}

type pageGroup struct {
	Name, Description string
	Operations        []pageOperation
}

type pageOperation struct {
	ID, Method, Path, Summary, Description string
	Who                                    string
	Parameters                             []pageMember
	Request                                string // name of a type
	Status                                 int
	Answer                                 string // name of a type, or a media type
	AnswerIsType                           bool
	Curl                                   string
	Refusals                               []pageRefusal
}

type pageType struct {
	Name, Description string
	Members           []pageMember
}

type pageMember struct {
	Name, Where, Type, Link, Description string
	Optional                             bool
}

type pageRefusal struct{ Status, Code, When string }

// renderPage returns the page, and the policy that lets a browser load nothing but the
// style that is in it.
func renderPage(d *document) (page []byte, policy string, err error) {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, pageOf(d)); err != nil {
		return nil, "", err
	}
	page = out.Bytes()
	_, after, found := bytes.Cut(page, []byte("<style>"))
	style, _, ended := bytes.Cut(after, []byte("</style>"))
	if !found || !ended {
		return nil, "", errors.New("the page has no style")
	}
	hash := sha256.Sum256(style)
	return page, "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", nil
}

func pageOf(d *document) pageData {
	data := pageData{Title: d.Info.Title, Version: d.Info.Version, Introduction: d.Info.Description}
	for _, tag := range d.Tags {
		group := pageGroup{Name: tag.Name, Description: tag.Description}
		for _, o := range d.operations {
			if o.Tags[0] == tag.Name {
				group.Operations = append(group.Operations, o.onPage())
			}
		}
		data.Groups = append(data.Groups, group)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		object := d.Components.Schemas[name]
		data.Types = append(data.Types, pageType{Name: name, Description: object.Description, Members: object.onPage()})
	}
	return data
}

func (o *described) onPage() pageOperation {
	r := o.route
	shown := pageOperation{
		ID: o.OperationID, Method: r.method, Path: r.path, Summary: o.Summary, Description: o.Description,
		Who: r.who(), Status: r.doc.status, Curl: o.curl(),
	}
	for _, p := range o.Parameters {
		shown.Parameters = append(shown.Parameters, pageMember{
			Name: p.Name, Where: p.In, Optional: !p.Required, Description: p.Description, Type: p.Schema.words(),
		})
	}
	if o.RequestBody != nil {
		shown.Request = o.RequestBody.Content[mediaJSON].Schema.link()
	}
	success := o.Responses[o.success()]
	if media := success.Content[mediaJSON]; media != nil {
		shown.Answer = media.Schema.link()
	}
	shown.AnswerIsType = shown.Answer != ""
	if !shown.AnswerIsType {
		shown.Answer = strings.Join(r.doc.raw, " or ")
	}
	for _, status := range slices.Sorted(maps.Keys(o.Refusals)) {
		for _, refusal := range o.Refusals[status] {
			shown.Refusals = append(shown.Refusals, pageRefusal{status, refusal.code, refusal.when})
		}
	}
	return shown
}

// who says who may call.
func (r *route) who() string {
	if r.doc.who != "" {
		return r.doc.who
	}
	return r.access.words()
}

// Who may call, where an endpoint does not serve everybody who may ask.
const (
	forAdmins  = "admin devices, and the operator"
	forSenders = "participants of the room, but viewers"
	forOwner   = "the room's owner, and the operator"
)

// words says whom it lets in.
func (a access) words() string {
	switch a {
	case forOperator:
		return "the operator"
	case forDevice:
		return "devices that have signed in, and the operator"
	case forSession:
		return "participants of the room, and the operator"
	case forService:
		return "edge nodes"
	case forEverybody:
		return "everybody"
	}
	return "nobody"
}

// curl is the operation as one would type it, with the example.
func (o *described) curl() string {
	r := o.route
	words := []string{"curl"}
	switch r.access {
	case forOperator:
		words = append(words, `-H "Authorization: Bearer $OPERATOR_TOKEN"`)
	case forDevice:
		words = append(words, `-H "Authorization: Bearer $ACCESS_TOKEN"`)
	case forSession:
		words = append(words, `-H "Authorization: Bearer $CREDENTIAL"`)
	case forService:
		words = append(words, `-H "Authorization: Bearer $SERVICE_TOKEN"`)
	case forEverybody:
	}
	if r.method != "GET" && r.method != "POST" || r.method == "POST" && o.RequestBody == nil {
		words = append(words, "-X "+r.method)
	}
	if o.RequestBody != nil {
		words = append(words, "--json "+shellQuote(string(o.RequestBody.Content[mediaJSON].Example)))
	}
	address := examplePath(r.path)
	var query []string
	for _, p := range o.Parameters {
		if p.In == "query" && p.Example != "" {
			query = append(query, p.Name+"="+p.Example)
		}
	}
	if len(query) > 0 {
		address += "?" + strings.Join(query, "&")
	}
	return strings.Join(append(words, `"$RELAY`+address+`"`), " \\\n  ")
}

// link names the type that a reference leads to.
func (s *schema) link() string { return strings.TrimPrefix(s.Ref, schemaPrefix) }

func (s *schema) onPage() []pageMember {
	var members []pageMember
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		member := pageMember{
			Name: name, Optional: !slices.Contains(s.Required, name), Description: property.Description,
			Type: property.words(), Link: property.link(),
		}
		if property.Items != nil {
			member.Link = property.Items.link()
		}
		members = append(members, member)
	}
	return members
}

// words says what a value is.
func (s *schema) words() string {
	switch kind := s.Type.(type) {
	case nil:
		if s.Ref != "" {
			return s.link()
		}
		return "any JSON"
	case []string:
		return strings.Join(kind, " or ")
	case string:
		switch {
		case kind == "array":
			return "list of " + s.Items.words()
		case len(s.Enum) > 0:
			return strings.Join(s.Enum, " | ")
		case s.ContentEncoding != "":
			return s.ContentEncoding
		case s.Format != "":
			return s.Format
		}
		return kind
	}
	return ""
}

// textPiece is a part of a paragraph.
type textPiece struct {
	Text string
	Code bool
}

// prose reads the little Markdown that descriptions use: paragraphs and code.
func prose(text string) [][]textPiece {
	var paragraphs [][]textPiece
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		var pieces []textPiece
		code := false
		for piece := range strings.SplitSeq(paragraph, "`") {
			if piece != "" {
				pieces = append(pieces, textPiece{piece, code})
			}
			code = !code
		}
		if len(pieces) > 0 {
			paragraphs = append(paragraphs, pieces)
		}
	}
	return paragraphs
}
