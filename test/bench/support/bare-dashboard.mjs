/** The least dashboard with the built plugin: `bare-dashboard.mjs PORT {"plugin", "relayPort", "agentHome", "env"}`. */
import { createServer } from 'node:http';

const [port, options] = process.argv.slice(2);
const { plugin: path, relayPort, agentHome, env = {} } = JSON.parse(options);
const { createDashboardPlugin } = await import(path);
const host = {
  authenticate: async () => ({ principal: 'bench' }),
  checkHostOrigin: () => true,
  consumeWsTicket: async () => ({}),
  isPluginEnabled: () => true,
};
const plugin = createDashboardPlugin({ host, relayPort, agentHome, env });

const server = createServer(async (request, response) => {
  if (!(await plugin.handle(request, response))) response.end('{}');
});
server.on('upgrade', (request, socket, head) => void plugin.upgrade(request, socket, head));
server.listen(Number(port), '127.0.0.1');
