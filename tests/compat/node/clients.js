// ali-ons against `rstore serve`: NAME-SERVICE COUNT; what was sent and seen as one line of JSON.
'use strict';
const { Producer, Consumer, Message } = require('ali-ons');

const [nameSrv, count] = [process.argv[2], Number(process.argv[3])];
const keys = { accessKeyId: 'a', accessKeySecret: 'b', nameSrv, httpclient: { request: async () => ({}) } };

async function main() {
  const producer = new Producer({ ...keys, producerGroup: 'NodeProducers', sendMsgTimeout: 60000 }); // else sent again after 3 s
  await producer.ready();
  const consumer = new Consumer({
    ...keys, consumerGroup: 'NodeConsumers', consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  const seen = new Set();
  let doubled = 0;
  let unwanted = 0;
  consumer.on('error', () => {});
  consumer.subscribe('Node', 'TagA', async message => {
    const body = message.body.toString();
    if (seen.has(body)) doubled++;
    if (body.startsWith('TagB')) unwanted++;
    seen.add(body);
  });
  await consumer.ready();
  let sent = 0;
  for (let i = 0; i < count; i++) {
    const tag = i % 2 ? 'TagB' : 'TagA';
    const result = await producer.send(new Message('Node', tag, tag + i));
    if (result.sendStatus === 'SEND_OK' && tag === 'TagA') sent++;
  }
  const end = Date.now() + 100000;
  while (seen.size < sent && Date.now() < end) await new Promise(done => setTimeout(done, 100));
  await new Promise(done => setTimeout(done, 500));
  console.log(JSON.stringify({ sent, seen: seen.size, doubled, unwanted }));
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
