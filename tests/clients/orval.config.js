module.exports = {
  api: {
    input: "openapi.json",
    output: { target: "generated/orval.ts", client: "fetch", baseUrl: process.env.BASE_URL },
  },
};
