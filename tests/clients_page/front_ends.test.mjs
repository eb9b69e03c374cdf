// The modules of docs/ for react-admin, refine and TanStack Query, with their packages.
import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import refineProvider from '@refinedev/simple-rest'
import { QueryClient } from '@tanstack/query-core'
import jsonServerProvider from 'ra-data-json-server'
import simpleRestProvider from 'ra-data-simple-rest'
import { API, send } from './client.mjs'
import { reactAdmin, refine } from './providers.mjs'
import { one, pages } from './queries.mjs'

const sort = { field: 'name', order: 'ASC' }
let ids
beforeEach(async () => {
  await send('POST', `${process.env.CONTROL}/reset`)
  const made = ['Chair', 'Desk', 'Lamp'].map((name) => ({ name, attributes: { colour: 'red' } }))
  ids = (await Promise.all(made.map((item) => send('POST', `${API}/products`, item)))).map(({ data }) => data.id)
})

test('react-admin lists, changes and deletes', async () => {
  const { data, total } = await reactAdmin.getList('products', { pagination: { page: 1, perPage: 2 }, sort, filter: {} })
  assert.deepEqual([data.map(({ name }) => name), total], [['Chair', 'Desk'], 3])
  await reactAdmin.update('products', { id: ids[0], data: { ...data[0], stock: 5 } })
  assert.deepEqual(await reactAdmin.updateMany('products', { ids, data: { stock: 7 } }), { data: ids })
  const many = await reactAdmin.getMany('products', { ids })
  assert.deepEqual(many.data.map(({ stock, attributes }) => [stock, attributes.colour]), Array(3).fill([7, 'red']))
  await reactAdmin.delete('products', { id: ids[0] })
  const simple = simpleRestProvider(API)
  const rest = await simple.getList('products', { pagination: { page: 1, perPage: 2 }, sort, filter: { name: 'Desk' } })
  assert.deepEqual([rest.data.map(({ id }) => id), rest.total], [[ids[1]], 1])
})

test('react-admin shows errors at the fields', async () => {
  const body = { errors: { price: 'must be from 0 to 9999999999999.99' } }
  const error = await reactAdmin.create('products', { data: { name: 'Lamp', price: -1 } }).catch((error) => error)
  assert.deepEqual([error.status, error.body.errors], [422, body.errors])
})

test('refine lists, changes and shows errors at the fields', async () => {
  const sorters = [{ field: 'name', order: 'desc' }]
  const { data, total } = await refine.getList({ resource: 'products', pagination: { pageSize: 2 }, sorters })
  assert.deepEqual([data.map(({ name }) => name), total], [['Lamp', 'Desk'], 3])
  const changed = await refine.update({ resource: 'products', id: ids[0], variables: { stock: 5 } })
  assert.deepEqual([changed.data.stock, changed.data.name], [5, 'Chair'])
  const error = await refine.create({ resource: 'products', variables: {} }).catch((error) => error)
  assert.deepEqual([error.statusCode, Object.keys(error.errors)], [422, ['name']])
})

// Of a JSON file, and of declared collections: the items 2 and 4 refer to Ann, 1 to Bob, 3 to Cid.
for (const [resource, reference, url] of [['posts', 'author', process.env.BLOG], ['orders', 'customer', process.env.SHOP]]) {
  const name = `${reference}.name`
  const found = ({ data, total }) => [data.map(({ id }) => Number(String(id).at(-1))), total]
  const ordered = [[[2, 4, 1], 4], [[3, 1, 4], 4], [[3], 4]]

  test(`react-admin sorts and filters ${resource} by ${name}`, async () => {
    for (const { getList } of [jsonServerProvider(url), simpleRestProvider(url)]) {
      const list = async (order, filter, page = 1) =>
        getList(resource, { pagination: { page, perPage: 3 }, sort: { field: name, order }, filter, meta: { embed: reference } })
      const lists = [await list('ASC', {}), await list('DESC', {}), await list('ASC', {}, 2)]
      assert.deepEqual(lists.map(found), ordered)
      assert.deepEqual(lists[1].data.map((item) => item[reference].name), ['Cid', 'Bob', 'Ann'])
      // The second one is what the input of a form with source="author.name" has.
      for (const filter of [{ [name]: 'Ann' }, { [reference]: { name: 'Ann' } }])
        assert.deepEqual(found(await list('ASC', filter)), [[2, 4], 2])
      assert.deepEqual(found(await list('ASC', { [reference]: { name: ['Cid', 'Ann'] } })), [[2, 4, 3], 3])
      assert.deepEqual(found(await list('DESC', { [`${name}_ne`]: 'Ann', [`${name}_like`]: 'B' })), [[1], 1])
    }
  })

  test(`refine sorts and filters ${resource} by ${name}`, async () => {
    const list = async (order, filters = [], currentPage = 1) => {
      const sorters = [{ field: name, order }, { field: 'id', order }]
      const where = filters.map(([operator, value]) => ({ field: name, operator, value }))
      return found(await refineProvider(url).getList({ resource, pagination: { currentPage, pageSize: 3 }, sorters, filters: where }))
    }
    assert.deepEqual([await list('asc'), await list('desc'), await list('asc', [], 2)], ordered)
    assert.deepEqual(await list('asc', [['eq', 'Ann']]), [[2, 4], 2])
    assert.deepEqual(await list('asc', [['in', ['Cid', 'Ann']]]), [[2, 4, 3], 3])
    assert.deepEqual(await list('desc', [['ne', 'Ann'], ['contains', 'b'], ['gte', 'B']]), [[1], 1])
  })
}

test('TanStack Query reads a list and its pages', async () => {
  const client = new QueryClient()
  assert.equal((await client.fetchQuery(one(`${API}/products`))).length, 3)
  const found = await client.fetchInfiniteQuery({ ...pages(`${API}/products?limit=2`), pages: 9 })
  assert.deepEqual(found.pages.map(({ data }) => data.length), [2, 1])
  client.clear()
})
