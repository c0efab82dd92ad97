package api

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

var update = flag.Bool("update", false, "write the files that are made from the source")

func describedRoutes(t *testing.T) (*document, []route) {
	t.Helper()
	routes := newAPI(Config{}).routes()
	d, err := describeAPI(routes, "v1")
	require.NoError(t, err)
	return d, routes
}

// What the reference says of types and members is what the source says of them.
func TestCommentsAreThoseOfTheSource(t *testing.T) {
	t.Parallel()
	d, _ := describedRoutes(t)
	comments := make(map[string]string)
	for name, text := range sourceComments(t) {
		typeName, _, _ := strings.Cut(name, ".")
		if d.Components.Schemas[typeName] != nil && text != "" {
			comments[name] = text
		}
	}
	want, err := json.Marshal(comments, json.Deterministic(true), jsontext.WithIndent("  "))
	require.NoError(t, err)
	want = append(want, '\n')
	file := filepath.Join("reference", "comments.json")
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o600))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "go test ./api -run TestCommentsAreThoseOfTheSource -update")
	for name := range d.Components.Schemas {
		require.NotEmpty(t, comments[name], "%s has a comment", name)
	}
}

// sourceComments are those of the package's types and of their fields.
func sourceComments(t *testing.T) map[string]string {
	t.Helper()
	comments := make(map[string]string)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			declaration, ok := node.(*ast.GenDecl)
			if !ok || declaration.Tok != token.TYPE {
				return true
			}
			for _, spec := range declaration.Specs {
				typeSpec, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				comments[typeSpec.Name.Name] = oneLine(declaration.Doc, typeSpec.Doc)
				fieldComments(comments, typeSpec)
			}
			return false
		})
	}
	return comments
}

func fieldComments(comments map[string]string, spec *ast.TypeSpec) {
	object, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range object.Fields.List {
		for _, name := range field.Names {
			comments[spec.Name.Name+"."+name.Name] = oneLine(field.Doc, field.Comment)
		}
	}
}

func oneLine(groups ...*ast.CommentGroup) string {
	for _, group := range groups {
		if text := strings.Join(strings.Fields(group.Text()), " "); text != "" {
			return text
		}
	}
	return ""
}

func TestDocumentIsOpenAPI(t *testing.T) {
	t.Parallel()
	made, err := newReference(newAPI(Config{}).routes(), "v1")
	require.NoError(t, err)
	parsed, err := libopenapi.NewDocument(made.openAPI)
	require.NoError(t, err)
	_, err = parsed.BuildV3Model()
	require.NoError(t, err)
	check, failures := validator.NewValidator(parsed)
	require.Empty(t, failures)
	valid, wrong := check.ValidateDocument()
	for _, w := range wrong {
		t.Log(w.Error(), w.SchemaValidationErrors)
	}
	require.True(t, valid)
}

// Each route is described, whole, and nothing else is.
func TestOperationsAreTheRoutes(t *testing.T) {
	t.Parallel()
	d, routes := describedRoutes(t)
	var served, documented []string
	ids := make(map[string]bool)
	for _, r := range routes {
		served = append(served, r.name())
		require.NotEmpty(t, r.doc.summary, r.name())
		require.NotZero(t, r.doc.status, r.name())
		require.NotNil(t, r.handler, r.name())
		require.True(t, r.doc.answer != nil || r.doc.raw != nil, "%s says what it answers", r.name())
		require.Equal(t, r.doc.request != nil, r.doc.example != nil, "%s has an example of its body", r.name())
		require.True(t, r.doc.request == nil || slices.Contains([]string{"POST", "PUT", "PATCH"}, r.method), "%s: bodies belong to these methods", r.name())
		for _, p := range slices.Concat(r.doc.query, r.doc.header) {
			require.NotEmpty(t, p.name, r.name())
			require.NotEmpty(t, p.description, r.name())
		}
	}
	for path, methods := range d.Paths {
		for method, o := range methods {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			require.False(t, ids[o.OperationID], "%s is there twice", o.OperationID)
			ids[o.OperationID] = true
			for status, response := range o.Responses {
				require.NotEmpty(t, response.Description, "%s %s", o.OperationID, status)
			}
			for _, p := range o.Parameters {
				require.False(t, p.In == "path" && p.Example == "", "%s: the parameter %s has an example", o.OperationID, p.Name)
			}
		}
	}
	require.ElementsMatch(t, served, documented)
	require.Len(t, d.operations, len(served))
}

// A code is described under the status that the table gives it.
func TestRefusalsHaveTheirStatus(t *testing.T) {
	t.Parallel()
	d, _ := describedRoutes(t)
	for _, o := range d.operations {
		for status, refusals := range o.Refusals {
			for _, refusal := range refusals {
				info, known := wire.Lookup(wire.Code(refusal.code))
				require.True(t, known, refusal.code)
				require.Equal(t, status, stringOf(info.Status))
				require.NotEmpty(t, refusal.when)
			}
			if status != o.success() {
				require.NotNil(t, o.Responses[status])
			}
		}
	}
}

func stringOf(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	type Inner struct {
		Data []byte `json:"data"`
	}
	type Outer struct {
		Name   string           `json:"name" schema:"a|b"`
		Count  uint64           `json:"count"`
		Size   *int64           `json:"size,omitzero" schema:"1..9"`
		Null   *string          `json:"null"`
		IDs    []string         `json:"ids" schema:"uuid"`
		Inner  *Inner           `json:"inner,omitzero"`
		Inners []Inner          `json:"inners"`
		Any    jsontext.Value   `json:"any"`
		Map    map[string]int64 `json:"map"`
		Key    []byte           `json:"key,format:base64url"`
		hidden int
	}
	_ = Outer{hidden: 1}
	s := newSchemas(map[string]string{"Outer.Count": "how many"})
	ref, err := s.request(Outer{})
	require.NoError(t, err)
	text, err := json.Marshal(s.byName[ref.link()], json.Deterministic(true))
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"object","additionalProperties":false,
		"required":["name","count","null","ids","inners","any","map","key"],
		"properties":{
			"name":{"type":"string","enum":["a","b"]},
			"count":{"type":"integer","minimum":0,"description":"how many"},
			"size":{"type":"integer","minimum":1,"maximum":9},
			"null":{"type":["string","null"]},
			"ids":{"type":"array","items":{"type":"string","format":"uuid"}},
			"inner":{"$ref":"#/components/schemas/Inner"},
			"inners":{"type":"array","items":{"$ref":"#/components/schemas/Inner"}},
			"any":{},
			"map":{"type":"object","additionalProperties":{"type":"integer"}},
			"key":{"type":"string","contentEncoding":"base64url"}}}`, string(text))
	require.Equal(t, false, s.byName["Inner"].AdditionalProperties, "what is in a strict body is strict")

	for _, wrong := range []any{struct{ A int }{}, make(chan int), struct{}{}} {
		_, err := newSchemas(nil).answer(wrong)
		require.Error(t, err, "%T", wrong)
	}
	_, err = s.answer(struct {
		Inner struct{ A int } `json:"inner"`
	}{})
	require.Error(t, err)
}

func TestOperationIDs(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/v1/rooms/{id}/members/{participant_id}": "getRoomsByIdMembersByParticipantId",
		"/internal/v1/history":                    "getInternalHistory",
		"/openapi.json":                           "getOpenapiJson",
		"/v1/sessions/{id}/sender-generations":    "getSessionsByIdSenderGenerations",
	} {
		require.Equal(t, want, operationID(&route{method: "GET", path: path}))
	}
}

func TestGroupsWithoutATextAreRefused(t *testing.T) {
	t.Parallel()
	_, err := describeAPI([]route{{method: "GET", path: "/", doc: doc{tag: "odd", status: 200}}}, "v1")
	require.ErrorContains(t, err, "odd")
	_, err = describeAPI([]route{{method: "GET", path: "/", doc: doc{tag: "rooms", status: 200, refusals: []refusedAs{{"no_such_code", ""}}}}}, "v1")
	require.ErrorContains(t, err, "no_such_code")
	require.Equal(t, []string{"auth", "board", "credentials", "devices", "enrollment", "health", "internal", "mls", "network", "participants", "reference", "rooms", "sessions", "tenants"},
		slices.Sorted(maps.Keys(tagNames())))
}

func tagNames() map[string]bool {
	names := make(map[string]bool)
	for _, tag := range tags {
		names[tag.Name] = true
	}
	return names
}

func TestProse(t *testing.T) {
	t.Parallel()
	require.Equal(t, [][]textPiece{
		{{"a ", false}, {"b", true}, {" c", false}}, {{"d", false}},
	}, prose("a `b` c\n\nd"))
	require.Empty(t, prose(""))
}

// endpointRow is a row of the table in docs/api.md.
func endpointRow(r *route) string {
	return "| `" + r.method + "` | `" + r.path + "` | " + r.who() + " | " + r.doc.summary + " |\n"
}

// docs/api.md has a table of all endpoints, and the limits in force.
func TestGuideIsComplete(t *testing.T) {
	t.Parallel()
	const head = "| method | path | for | |\n|---|---|---|---|\n"
	_, routes := describedRoutes(t)
	var want strings.Builder
	for i := range routes {
		want.WriteString(endpointRow(&routes[i]))
	}
	file := filepath.Join("..", "docs", "api.md")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, after, found := strings.Cut(string(text), head)
	require.True(t, found)
	table, rest, more := strings.Cut(after, "\n\n")
	if more {
		table, rest = table+"\n", "\n"+rest
	}
	if *update {
		table = want.String()
		require.NoError(t, os.WriteFile(file, []byte(before+head+table+rest), 0o600))
	}
	require.Equal(t, want.String(), table, "go test ./api -run TestGuideIsComplete -update")

	l := Limits{}.withDefaults()
	for _, pair := range [][2]int{{l.TokenPerSecond, l.TokenBurst}, {l.AddressPerSecond, l.AddressBurst}, {l.FailuresPerSecond, l.FailuresBurst}, {l.EnrollPerSecond, l.EnrollBurst}} {
		require.Contains(t, string(text), fmt.Sprintf("| %d in a second, %d at once |", pair[0], pair[1]))
	}
	require.Contains(t, string(text), fmt.Sprintf("| requests being answered | %d |", l.Requests))
	require.Contains(t, string(text), fmt.Sprintf("| of edge nodes being answered | %d |", maxInternalRequests))
}
