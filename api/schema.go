package api

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// schema is a JSON Schema (2020-12), as far as our types need it.
type schema struct {
	Ref                  string             `json:"$ref,omitzero"`
	Description          string             `json:"description,omitzero"`
	Type                 any                `json:"type,omitzero"` // a name, or a list of names
	Format               string             `json:"format,omitzero"`
	ContentEncoding      string             `json:"contentEncoding,omitzero"`
	Enum                 []string           `json:"enum,omitempty"`
	Minimum              *int64             `json:"minimum,omitzero"`
	Maximum              *int64             `json:"maximum,omitzero"`
	Items                *schema            `json:"items,omitzero"`
	Properties           map[string]*schema `json:"properties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	AdditionalProperties any                `json:"additionalProperties,omitzero"` // a *schema, or false
}

// schemas describes Go types as package json writes and reads them, each struct once
// and by its name. It is small because our types are: a library for all of Go's would
// know encoding/json's rules, and describe omitzero, []byte and null otherwise than
// they are written here.
type schemas struct {
	comments map[string]string // "Type" and "Type.Field" -> what the source says of them
	byName   map[string]*schema
	types    map[string]reflect.Type
	strict   map[string]bool // bodies of requests, and what is in them: no further members
}

func newSchemas(comments map[string]string) *schemas {
	return &schemas{
		comments: comments, byName: make(map[string]*schema),
		types: make(map[string]reflect.Type), strict: make(map[string]bool),
	}
}

// request describes the type of a body that is sent.
func (s *schemas) request(value any) (*schema, error) {
	ref, err := s.of(reflect.TypeOf(value))
	if err != nil {
		return nil, err
	}
	s.close(ref)
	return ref, nil
}

// answer describes the type of a body that is received. Receivers ignore members they
// do not know, so that there may be more one day.
func (s *schemas) answer(value any) (*schema, error) { return s.of(reflect.TypeOf(value)) }

// close forbids further members in what ref reaches.
func (s *schemas) close(at *schema) {
	if at == nil {
		return
	}
	name := strings.TrimPrefix(at.Ref, schemaPrefix)
	if at.Ref == "" || s.strict[name] {
		s.close(at.Items)
		return
	}
	s.strict[name] = true
	s.byName[name].AdditionalProperties = false
	for _, property := range s.byName[name].Properties {
		s.close(property)
	}
}

const schemaPrefix = "#/components/schemas/"

var (
	timeType  = reflect.TypeFor[time.Time]()
	valueType = reflect.TypeFor[jsontext.Value]()
	textType  = reflect.TypeFor[encoding.TextMarshaler]()
)

func (s *schemas) of(t reflect.Type) (*schema, error) {
	switch {
	case t == timeType:
		return &schema{Type: "string", Format: "date-time"}, nil
	case t == valueType:
		return &schema{}, nil
	case t.Implements(textType):
		return &schema{Type: "string"}, nil
	}
	switch t.Kind() {
	case reflect.String:
		return &schema{Type: "string"}, nil
	case reflect.Bool:
		return &schema{Type: "boolean"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &schema{Type: "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &schema{Type: "integer", Minimum: new(int64)}, nil
	case reflect.Float32, reflect.Float64:
		return &schema{Type: "number"}, nil
	case reflect.Interface:
		return &schema{}, nil
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Slice, reflect.Array:
		return s.list(t)
	case reflect.Map:
		value, err := s.of(t.Elem())
		return &schema{Type: "object", AdditionalProperties: value}, err
	case reflect.Struct:
		return s.named(t)
	default:
		return nil, fmt.Errorf("api: %s has no JSON Schema", t)
	}
}

func (s *schemas) list(t reflect.Type) (*schema, error) {
	if t.Elem().Kind() == reflect.Uint8 {
		return &schema{Type: "string", ContentEncoding: "base64"}, nil
	}
	items, err := s.of(t.Elem())
	return &schema{Type: "array", Items: items}, err
}

// named returns a reference to a struct's schema.
func (s *schemas) named(t reflect.Type) (*schema, error) {
	name := t.Name()
	if name == "" {
		return nil, fmt.Errorf("api: a type without a name has no place in the reference: %s", t)
	}
	ref := &schema{Ref: schemaPrefix + name}
	if known := s.types[name]; known != nil {
		if known != t {
			return nil, fmt.Errorf("api: %s and %s have one name in the reference", known, t)
		}
		return ref, nil
	}
	object := &schema{Type: "object", Description: s.comments[name], Properties: make(map[string]*schema)}
	s.types[name], s.byName[name] = t, object // before its members, which may hold it
	return ref, s.members(object, t)
}

// members adds those of a struct, with what is embedded in it.
func (s *schemas) members(object *schema, t reflect.Type) error {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			if err := s.members(object, field.Type); err != nil {
				return err
			}
			continue
		}
		if !field.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			return fmt.Errorf("api: %s.%s has no name in JSON", t, field.Name)
		}
		member, err := s.member(t, field, options)
		if err != nil {
			return err
		}
		object.Properties[name] = member
		if !strings.Contains(options, "omit") {
			object.Required = append(object.Required, name)
		}
	}
	return nil
}

func (s *schemas) member(t reflect.Type, field reflect.StructField, options string) (*schema, error) {
	member, err := s.of(field.Type)
	if err != nil {
		return nil, err
	}
	member.Description = s.comments[t.Name()+"."+field.Name]
	if strings.Contains(options, "format:base64url") {
		member.ContentEncoding = "base64url"
	}
	if kind, ok := member.Type.(string); ok && field.Type.Kind() == reflect.Pointer && !strings.Contains(options, "omit") && field.Tag.Get("schema") != neverNull {
		member.Type = []string{kind, "null"}
	}
	return member, member.constrain(field.Tag.Get("schema"))
}

// neverNull in a field's tag says that its pointer only tells whether it was there.
const neverNull = "required"

// constrain adds what a field's tag says beyond its type: a format, the values there
// are ("a|b"), or a range ("1..500").
func (s *schema) constrain(tag string) error {
	at := s
	if s.Items != nil {
		at = s.Items
	}
	low, high, ranged := strings.Cut(tag, "..")
	switch {
	case tag == "", tag == neverNull:
	case ranged:
		least, err := strconv.ParseInt(low, 10, 64)
		if err != nil {
			return fmt.Errorf("api: tag schema:%q: %w", tag, err)
		}
		at.Minimum = &least
		if high == "" {
			return nil
		}
		most, err := strconv.ParseInt(high, 10, 64)
		at.Maximum = &most
		return err
	case strings.Contains(tag, "|"):
		at.Enum = strings.Split(tag, "|")
	default:
		at.Format = tag
	}
	return nil
}
