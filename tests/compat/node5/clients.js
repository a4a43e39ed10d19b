'use strict';
// The Node.js client of RocketMQ 5, by way of the proxy: a line for each thing that was seen, `WHAT VALUE`.
// ENDPOINTS: what Probe.java does, on topics whose names begin with Node.
const path = require('path');
const os = require('os');
const { EggLogger } = require('egg-logger');
const { Producer, SimpleConsumer, PushConsumer, ConsumeResult } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const endpoints = process.argv[2];
const logger = new EggLogger({ file: path.join(os.homedir(), 'node-client.log'), level: 'INFO', consoleLevel: 'NONE' });
const common = { endpoints, namespace: '', logger, requestTimeout: 60000 };

async function producer(topic, more) {
  const made = new Producer({ ...common, topics: [topic], ...more });
  await made.startup();
  return made;
}

async function consumer(topic) {
  const made = new SimpleConsumer({
    ...common, consumerGroup: 'G-' + topic, subscriptions: new Map([[topic, '*']]), awaitDuration: 2000,
  });
  await made.startup();
  return made;
}

function message(topic, body, more) {
  return { topic, tag: 'tag', keys: ['key-' + body], body: Buffer.from(body), ...more };
}

async function receive(from, count, seconds) {
  const all = [];
  const until = Date.now() + seconds * 1000;
  while (all.length < count && Date.now() < until) {
    all.push(...await from.receive(16, 60000));
  }
  return all;
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const told = one => one.body.toString() + '/' + one.deliveryAttempt;
const bodies = messages => messages.map(told).sort().join(', ');

async function simple() {
  const sender = await producer('NodeSimple');
  for (let i = 0; i < 4; i++) {
    await sender.send(message('NodeSimple', 's' + i, { properties: new Map([['number', '' + i]]) }));
  }
  const from = await consumer('NodeSimple');
  const first = await receive(from, 4, 60);
  for (const one of first) {
    if (one.body.toString() === 's3') {
      await from.changeInvisibleDuration(one, 2000);
    } else {
      await from.ack(one);
    }
  }
  const again = await receive(from, 1, 60);
  for (const one of again) {
    await from.ack(one);
  }
  return `[${bodies(first)}] ${[...first[0].properties.keys()]} ${first[0].tag} again [${bodies(again)}]`;
}

/** Until `count` have been consumed, and a moment more: one that is delivered too often is to be seen. */
async function push(topic, count, group) {
  const got = [];
  const from = new PushConsumer({
    ...common, consumerGroup: 'G-' + topic, subscriptions: new Map([[topic, '*']]),
    messageListener: {
      async consume(one) {
        got.push(told(one));
        return one.body.toString().startsWith('fail') && one.deliveryAttempt === 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      },
    },
  });
  await from.startup();
  const sender = await producer(topic);
  for (let i = 0; i < 4; i++) {
    await sender.send(message(topic, (i === 1 ? 'fail' : 'p') + i, group && { messageGroup: group }));
  }
  const until = Date.now() + 60000;
  while (got.length < count && Date.now() < until) {
    await sleep(100);
  }
  await sleep(5000);
  return `[${(group ? got : got.sort()).join(', ')}]`;
}

async function delay() {
  const sender = await producer('NodeDelay');
  const from = await consumer('NodeDelay');
  const due = Date.now() + 3000;
  await sender.send(message('NodeDelay', 'd', { deliveryTimestamp: new Date(due) }));
  const got = await receive(from, 1, 60);
  return `[${bodies(got)}]${Date.now() < due ? ' too early' : ' in time'}`;
}

async function transaction() {
  let asked = 0;
  const sender = await producer('NodeTransaction', {
    checker: {
      async check(one) {
        if (one.body.toString() !== 'ask') {
          return TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED; // it is about to be ended
        }
        asked++;
        return TransactionResolution.COMMIT;
      },
    },
  });
  const from = await consumer('NodeTransaction');
  for (const body of ['commit', 'back', 'ask']) {
    const one = sender.beginTransaction();
    await sender.send(message('NodeTransaction', body), one);
    if (body === 'commit') {
      await one.commit();
    } else if (body === 'back') {
      await one.rollback();
    }
  }
  const got = await receive(from, 2, 60);
  return `[${bodies(got)}] asked ${asked > 0}`;
}

async function recall() {
  const sender = await producer('NodeRecall');
  const from = await consumer('NodeRecall');
  const due = { deliveryTimestamp: new Date(Date.now() + 20000) };
  const gone = await sender.send(message('NodeRecall', 'gone', due));
  await sender.send(message('NodeRecall', 'stays', due));
  const same = (await sender.recallMessage('NodeRecall', gone.recallHandle)).messageId === gone.messageId;
  const got = await receive(from, 1, 60);
  got.push(...await from.receive(16, 60000)); // both were due at once: no other is to come
  return `[${bodies(got)}] ${same}`;
}

const parts = {
  simple, push: () => push('NodePush', 5), fifoPush: () => push('NodeFifoPush', 4, 'one'), delay, transaction, recall,
};
const late = new Promise(resolve => setTimeout(() => resolve('late'), 200000));
Promise.all(Object.entries(parts).map(async ([name, part]) => {
  const outcome = await Promise.race([late, part().catch(error => 'failed: ' + (error.stack || error))]);
  console.log(name + ' ' + String(outcome).replace(/\n/g, ' '));
})).then(() => process.exit(0));
