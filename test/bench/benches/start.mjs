export default {
  name: 'start',
  title: 'start to the first healthy answer',
  unit: 'ms',
  most: 500,
  rounds: 7,
  async prepare(stage) {
    const measure = async (start) => {
      const server = await start();
      await stage.stop(server);
      return server.startedIn;
    };
    return { relay: () => measure(() => stage.relay()), bare: () => measure(() => stage.bare('http')) };
  },
};
