window.onload = () => SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
  // Swagger UI looks for a component by the format of what a list has, and warns where there is none.
  plugins: [({ React }) => ({
    components: {
      JsonSchema_integer_int64: (props) => React.createElement(props.getComponent("JsonSchema_string"), props),
    },
  })],
});
