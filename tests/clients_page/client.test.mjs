// The modules of docs/ that need no packages, against a space of the test harness: its control is in CONTROL.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { beforeEach, test } from 'node:test'
import { API, send, update } from './client.mjs'
import { messagesOf } from './errors.mjs'
import { follow } from './follow.mjs'
import { items } from './lists.mjs'
import { verify } from './verify.mjs'

const products = `${API}/products`
const control = (path, value) => send('POST', `${process.env.CONTROL}/${path}`, value)
const fault = (kind, method, more) => control('faults', { kind, method, path: '*', times: 1, ...more })
const create = async (name, more) => (await send('POST', products, { name, ...more })).data
const namesOf = async (url) => (await send('GET', url)).data.map((item) => item.name)

beforeEach(() => control('reset'))

for (const [kind, more] of [
  ['close'],
  ['drop_response'],
  ['cut_response'],
  ['respond', { status: 503, retry_after: 0 }],
  ['respond', { status: 429, retry_after: 1 }],
]) {
  test(`a POST is done once: ${kind} ${more?.status ?? ''}`, async () => {
    await fault(kind, 'POST', more)
    const began = Date.now()
    assert.equal((await create('Lamp')).name, 'Lamp')
    assert.ok(Date.now() - began >= 900 * (more?.retry_after ?? 0))
    assert.deepEqual(await namesOf(products), ['Lamp'])
    const sent = (await send('GET', `${process.env.CONTROL}/requests?method=POST`)).data
    assert.equal(sent.length, 2)
  })
}

test('it ends after five attempts, also without a response', async () => {
  await fault('respond', 'GET', { status: 503, retry_after: 0, times: 9 })
  await assert.rejects(send('GET', products), { status: 503 })
  assert.equal((await send('GET', `${process.env.CONTROL}/requests`)).data.length, 5)
  await control('reset')
  await fault('close', 'GET', { times: 9 })
  await assert.rejects(send('GET', products), TypeError)
})

test('a problem is an error with its members, and is not sent again', async () => {
  await assert.rejects(send('GET', `${products}/none`), { status: 404, title: 'Not found' })
  assert.equal((await send('GET', `${process.env.CONTROL}/requests`)).data.length, 1)
})

test('an update does not lose that of somebody else', async () => {
  const { id } = await create('Lamp', { stock: 1 })
  const url = `${products}/${id}`
  const addOne = (read) => ({ stock: read.stock + 1 })
  assert.equal((await update(url, addOne)).data.stock, 2)
  const both = await Promise.all([update(url, addOne), update(url, addOne)])
  assert.deepEqual(both.map(({ data }) => data.stock).sort(), [3, 4])
  await fault('respond', 'PATCH', { status: 412 })
  assert.equal((await update(url, addOne)).data.stock, 5)
  let calls = 0
  await assert.rejects(update(url, () => ({ stock: -++calls })), { status: 422 })
  assert.equal(calls, 1)
  await fault('respond', 'PATCH', { status: 412, times: 9 })
  await assert.rejects(update(url, addOne), { status: 412 })
})

test('a list is read to its end', async () => {
  for (const name of ['Chair', 'Desk', 'Lamp', 'Shelf', 'Stool']) await create(name)
  const found = []
  for await (const { name } of items(`${products}?sort=-name&limit=2`)) found.push(name)
  assert.deepEqual(found, ['Stool', 'Shelf', 'Lamp', 'Desk', 'Chair'])
})

test('a read is 304 if nothing has changed', async () => {
  const { headers } = await send('GET', products)
  const tag = headers.get('ETag')
  const again = await send('GET', products, undefined, { 'If-None-Match': tag })
  assert.deepEqual([again.status, again.data], [304, null])
  await create('Lamp')
  assert.equal((await send('GET', products, undefined, { 'If-None-Match': tag })).data.length, 1)
})

test('errors have the names of fields', async () => {
  const problem = await send('POST', products, { price: -1, tags: ['a', 5], 'a~/b c': 1 }).catch((error) => error)
  const fields = ['name', 'price', 'tags.1', 'a~/b c']
  assert.deepEqual(Object.keys(messagesOf(problem)).sort(), fields.sort())
  await create('Lamp', { sku: 'L-1' })
  const duplicate = await create('Lamp', { sku: 'L-1' }).catch((error) => error)
  assert.deepEqual(messagesOf(duplicate), { sku: 'is taken by another item' })
  assert.deepEqual(messagesOf({ errors: [{ pointer: '#', detail: 'a' }, { pointer: '#', detail: 'b' }] }), { '': 'a; b' })
  assert.deepEqual(messagesOf({}), {})
})

test('events are read once each, over interruptions and from a cursor', async () => {
  for (const name of ['Chair', 'Desk', 'Lamp']) await create(name)
  const [{ id: first }] = (await send('GET', `${API}/events`)).data
  for (const kind of ['close', 'cut_response']) await fault(kind, 'GET', { path: '*/events' })
  const found = []
  for await (const [cursor, { data, type }] of follow(first, 'collection=products')) {
    found.push([cursor > first, type, data.name])
    if (found.length === 2) await create('Shelf')
    if (found.length === 3) break
  }
  assert.deepEqual(found, ['Desk', 'Lamp', 'Shelf'].map((name) => [true, 'product.created', name]))
  await fault('respond', 'GET', { path: '*/events', status: 410 })
  await assert.rejects(follow(first).next(), { status: 410 })
})

test('a webhook is verified', async (context) => {
  const messages = []
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const part of request.setEncoding('utf8')) body += part
    messages.push([request.headers, body])
    response.writeHead(204).end()
  }).listen(0, '127.0.0.1')
  context.after(() => server.close().closeAllConnections())
  await once(server, 'listening')
  const url = `http://127.0.0.1:${server.address().port}/`
  const { id, secret } = (await send('POST', `${API}/webhooks`, { url })).data
  await send('POST', `${API}/webhooks/${id}/ping`)
  await send('PATCH', `${process.env.CONTROL}/clock`, { advance: 1 })
  const [[headers, body]] = messages
  assert.equal(verify(secret, headers, body).type, 'webhook.ping')
  const old = { ...headers, 'webhook-timestamp': headers['webhook-timestamp'] - 600 }
  for (const [others, text] of [[headers, `${body} `], [old, body], [{}, body]]) {
    assert.throws(() => verify(secret, others, text), /forged or old/)
  }
  const rotated = { ...headers, 'webhook-signature': `v1,AAAA ${headers['webhook-signature']}` }
  assert.equal(verify(secret, rotated, body).type, 'webhook.ping')
  assert.throws(() => verify('whsec_AAAA', headers, body), /forged or old/)
})
