// Writes messages.json: MLS messages of one group and of the group after a reset, made by
// ts-mls, each with what ts-mls reads of it.
import { writeFileSync } from "node:fs"
import {
  acceptAll, createApplicationMessage, createCommit, createGroup, createGroupInfoWithExternalPubAndRatchetTree, createProposal,
  decodeMlsMessage, defaultCapabilities, defaultLifetime, emptyPskIndex, encodeMlsMessage, encodeExternalSender, generateKeyPackage, getCiphersuiteFromName,
  getCiphersuiteImpl, joinGroup, joinGroupExternal, processMessage, proposeAddExternal, proposeExternal,
} from "ts-mls"

const suite = await getCiphersuiteImpl(getCiphersuiteFromName("MLS_128_DHKEMX25519_CHACHA20POLY1305_SHA256_Ed25519"))
const bytes = (text) => new TextEncoder().encode(text)
const messages = []

// note writes a message down with what the library reads of it.
function note(name, message) {
  const data = encodeMlsMessage({ version: "mls10", ...message })
  const [read, end] = decodeMlsMessage(data, 0)
  if (end !== data.length) throw new Error(name)
  const row = { name, wire_format: read.wireformat }
  const inside = read.publicMessage?.content ?? read.privateMessage ?? read.groupInfo?.groupContext
  if (inside) {
    row.group_id = Buffer.from(inside.groupId).toString("hex")
    row.epoch = Number(inside.epoch)
  }
  if (inside?.contentType) row.content_type = inside.contentType
  if (read.publicMessage) row.sender_type = read.publicMessage.content.sender.senderType
  row.message = Buffer.from(data).toString("base64")
  messages.push(row)
  return read
}

async function person(name) {
  const made = await generateKeyPackage({ credentialType: "basic", identity: bytes(name) }, defaultCapabilities(), defaultLifetime, [], suite)
  note(`${name}: key package`, { wireformat: "mls_key_package", keyPackage: made.publicPackage })
  return { name, ...made, groups: {} }
}

async function info(name, state) {
  const groupInfo = await createGroupInfoWithExternalPubAndRatchetTree(state, [], suite)
  return note(name, { wireformat: "mls_group_info", groupInfo }).groupInfo
}

// commit makes a commit with its group info and welcome, of what is not merged yet.
async function commit(name, state, proposals, wireAsPublicMessage) {
  const made = await createCommit({ state, cipherSuite: suite }, { extraProposals: proposals, wireAsPublicMessage, ratchetTreeExtension: true })
  note(`${name}: commit`, made.commit)
  await info(`${name}: group info`, made.newState)
  if (made.welcome) note(`${name}: welcome`, { wireformat: "mls_welcome", welcome: made.welcome })
  return made
}

const follow = async (state, message) => (await processMessage(message, state, emptyPskIndex, acceptAll, suite)).newState
const add = (who) => ({ proposalType: "add", add: { keyPackage: who.publicPackage } })
const join = (made, who) => joinGroup(made.welcome, who.publicPackage, who.privatePackage, emptyPskIndex, suite)
const application = async (name, state, text) => {
  const made = await createApplicationMessage(state, bytes(text), suite)
  note(name, { wireformat: "mls_private_message", privateMessage: made.privateMessage })
  return made.newState
}

const [alice, bob, carol, dave, erin, frank] = await Promise.all(["alice", "bob", "carol", "dave", "erin", "frank"].map(person))
const sender = await suite.signature.keygen()
const externalSenders = {
  extensionType: "external_senders",
  extensionData: encodeExternalSender({ credential: { credentialType: "basic", identity: bytes("outside") }, signaturePublicKey: sender.publicKey }),
}

// Epoch 0: alice is alone; she adds bob and carol with a PrivateMessage.
let a = await createGroup(bytes("first group"), alice.publicPackage, alice.privatePackage, [externalSenders], suite)
let made = await commit("0: add bob and carol", a, [add(bob), add(carol)], false)
a = made.newState
let b = await join(made, bob)
let c = await join(made, carol)
a = await application("1: application", a, "hello")

// Epoch 1: two remove carol at the same time, with a PublicMessage each; alice's is first.
const late = await commit("1: bob removes carol", b, [{ proposalType: "remove", remove: { removed: 2 } }], true)
made = await commit("1: alice removes carol", a, [{ proposalType: "remove", remove: { removed: 2 } }], true)
a = made.newState
b = await follow(b, made.commit)

// Epoch 2: dave joins by an external commit.
const open = await info("2: group info", a)
const joined = await joinGroupExternal(open, dave.publicPackage, dave.privatePackage, false, suite)
const external = note("2: dave joins: commit", { wireformat: "mls_public_message", publicMessage: joined.publicMessage })
let d = joined.newState
await info("2: dave joins: group info", d)
a = await follow(a, external)
b = await follow(b, external)

// Epoch 3: proposals of each kind of sender, then two commits at the same time.
const add1 = await proposeAddExternal(await info("3: group info", a), erin.publicPackage, erin.privatePackage, suite)
note("3: erin asks to be added", add1)
const out = await proposeExternal(await info("3: group info again", a), { proposalType: "remove", remove: { removed: 1 } }, sender.publicKey, sender.signKey, suite)
note("3: outside proposes to remove bob", out)
note("3: bob proposes in public", (await createProposal(b, true, add(frank), suite)).message)
note("3: bob proposes in private", (await createProposal(b, false, add(frank), suite)).message)
const byBob = await commit("3: bob adds frank", b, [add(frank)], false)
made = await commit("3: alice adds erin", a, [add(erin)], false)
a = made.newState
await join(made, erin)
b = await follow(b, made.commit)
made = await commit("4: bob adds frank", b, [add(frank)], false)
await follow(a, made.commit)

// After a reset: another group, with a long id (a length of two bytes), without proposals.
let again = await createGroup(new Uint8Array(200).fill(7), alice.publicPackage, alice.privatePackage, [], suite)
made = await commit("0 again: nobody is added", again, [], false)
await application("1 again: application", made.newState, "hello again")

writeFileSync("messages.json", "[\n" + messages.map((m) => "  " + JSON.stringify(m)).join(",\n") + "\n]\n")
for (const m of messages) console.log(m.name, m.wire_format, m.epoch ?? "", m.content_type ?? "", m.sender_type ?? "", m.message.length)
